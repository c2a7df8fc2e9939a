// Calls from the page (trying a tool, the playground) go through a task like anybody's: with a
// client token of one hour that carries the person of the page, so that the task decides.

import { post, remove } from "../api/client";
import type { TokenMade } from "../api/schema";
import { session } from "./session.svelte";

const SECONDS = 3600;
type Kept = { made: Promise<TokenMade>; until: number };
const kept = new Map<string, Kept>();
session.beforeLeaving(endTokens);

/** A client token for a task; the same one while it lasts. */
export async function clientToken(task: string): Promise<string> {
  const key = keyOf(task);
  let found = kept.get(key);
  if (!found || found.until <= Date.now()) {
    found = { made: made(task), until: Date.now() + (SECONDS - 60) * 1000 };
    kept.set(key, found);
    found.made.catch(() => kept.delete(key));
  }
  return (await found.made).token;
}

/** Make another one next time: the one there was is refused. */
export function forgetToken(task: string): void {
  kept.delete(keyOf(task));
}

/** Whoever signs out leaves no token behind. */
async function endTokens(): Promise<void> {
  const tokens = [...kept.values()].map((one) => one.made);
  kept.clear();
  await Promise.allSettled(tokens.map(async (one) => remove("/admin/api/tokens/{id}", { path: { id: (await one).id } })));
}

/** Nobody calls with the token of whoever was signed in before. */
function keyOf(task: string): string {
  return JSON.stringify([session.identity?.name, session.identity?.person, task]);
}

function made(task: string): Promise<TokenMade> {
  const person = session.identity?.person ?? null;
  return post("/admin/api/tokens", {
    body: { role: "client", name: "web page", task_id: task, person, ttl_seconds: SECONDS },
  });
}
