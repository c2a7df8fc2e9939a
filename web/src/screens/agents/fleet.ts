// The agents' API in the words of these screens.

import { asked } from "../../api/client";
import type { JsonObject } from "../../api/errors";
import type { ServerChanged, ServerView } from "../../api/schema";

/** Stands for `[[defaults.mcp]]` wherever an agent's id is asked for. */
export const DEFAULTS = "defaults";
export type Entry = JsonObject;

function address(agent: string, name: string | null): string {
  const one = name === null ? "" : `/${encodeURIComponent(name)}`;
  return `/api/agents/mcp/servers${one}?agent_id=${encodeURIComponent(agent)}`;
}

export async function add(agent: string, entry: Entry): Promise<ServerChanged> {
  return (await asked("post", address(agent, null), { body: entry })).data as ServerChanged;
}

export async function replace(agent: string, name: string, entry: Entry): Promise<ServerChanged> {
  return (await asked("put", address(agent, name), { body: entry })).data as ServerChanged;
}

export async function change(agent: string, name: string, fields: Entry): Promise<ServerChanged> {
  return (await asked("patch", address(agent, name), { body: fields })).data as ServerChanged;
}

export async function drop(agent: string, name: string): Promise<void> {
  await asked("delete", address(agent, name));
}

/** The entries that every agent has, as far as one of them shows them. */
export function defaultsOf(servers: readonly ServerView[]): ServerView[] {
  const found = new Map(servers.filter((one) => one.origin === DEFAULTS).map((one) => [one.name, one]));
  return [...found.values()];
}
