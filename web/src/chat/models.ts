// Which models there are for a task, and what to do where asking one came to no good end.

import { asked } from "../api/client";
import { Refused, Unreachable } from "../api/errors";
import { clientToken } from "../state/caller.svelte";
import { href } from "../state/route.svelte";
import { session } from "../state/session.svelte";

export const REHEARSAL = "rehearsal";

/** The models, each by its shortest name. */
export async function models(task: string, signal: AbortSignal): Promise<string[]> {
  const as = await clientToken(task);
  const { data } = await asked("get", session.atNode("/v1/models"), { signal, as });
  const names = (data as { data: Array<{ id: string }> }).data.map((one) => one.id);
  const all = new Set(names);
  return names.filter((name) => {
    const short = name.slice(name.indexOf("/") + 1);
    return short === name || !all.has(short);
  });
}

export type Advice = { text: string; link?: { href: string; label: string } };

/** What helps against an error, where something is known to. */
export function advice(error: unknown, task: string): Advice | null {
  if (error instanceof Unreachable || !(error instanceof Refused)) return null;
  if (error.code === "model_not_found") return { text: "Choose another model, or add the backend that has it.", link: backends() };
  if (error.status === 404) return { text: "The parked turn is gone: it was used, or its time is up. Ask again." };
  if (error.status === 409) return { text: "Another window goes on with this turn. Wait for it, or ask again." };
  if (error.status === 429) return { text: "The backend wants fewer requests. Wait a little, then ask again." };
  if (error.status === 403) return { text: "The task does not allow this.", link: { href: href("tasks", task), label: "Look at the task" } };
  if (error.status >= 500) return { text: "Look whether the backend runs, and at its address and key.", link: backends() };
  return null;
}

function backends(): { href: string; label: string } {
  return { href: href("platform"), label: "Backends" };
}
