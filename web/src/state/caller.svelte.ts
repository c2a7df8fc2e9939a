// Calls from the page (trying a tool, the playground) go through a task like anybody's: with a
// client token of one hour that carries the person of the page, so that the task decides.

import { post } from "../api/client";
import { session } from "./session.svelte";

const SECONDS = 3600;
type Kept = { token: Promise<string>; until: number };
const kept = new Map<string, Kept>();

/** A client token for a task; the same one while it lasts. */
export function clientToken(task: string): Promise<string> {
  const key = keyOf(task);
  const found = kept.get(key);
  if (found && found.until > Date.now()) return found.token;
  const token = made(task);
  kept.set(key, { token, until: Date.now() + (SECONDS - 60) * 1000 });
  token.catch(() => kept.delete(key));
  return token;
}

/** Make another one next time: the one there was is refused. */
export function forgetToken(task: string): void {
  kept.delete(keyOf(task));
}

/** Nobody calls with the token of whoever was signed in before. */
function keyOf(task: string): string {
  return JSON.stringify([session.identity?.name, session.identity?.person, task]);
}

async function made(task: string): Promise<string> {
  const person = session.identity?.person ?? null;
  const { token } = await post("/admin/api/tokens", {
    body: { role: "client", name: "web page", task_id: task, person, ttl_seconds: SECONDS },
  });
  return token;
}
