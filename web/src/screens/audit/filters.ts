// What is searched for. It stands in the address, so that a search can be kept, shared and gone back to.

import type { paths } from "../../api/schema";

type Query = NonNullable<paths["/admin/api/audit"]["get"]["parameters"]["query"]>;

export const WORDS = [
  "server_id",
  "tool_name",
  "task_id",
  "status",
  "person",
  "node",
  "event",
  "code",
  "caller",
  "token_id",
  "session_id",
  "request_id",
  "approval_id",
] as const satisfies ReadonlyArray<keyof Query>;
export type Word = (typeof WORDS)[number];
export type Filters = Record<Word | "last" | "since" | "until", string>;

/** Times counted back from now, in seconds. */
export const LAST: Record<string, { label: string; seconds: number }> = {
  "15m": { label: "The last 15 minutes", seconds: 900 },
  "1h": { label: "The last hour", seconds: 3600 },
  "24h": { label: "The last 24 hours", seconds: 86_400 },
  "7d": { label: "The last 7 days", seconds: 604_800 },
  "30d": { label: "The last 30 days", seconds: 2_592_000 },
};
/** What the API knows of these, which the build compares. */
export const EVENTS = [
  "call",
  "call_intent",
  "approval",
  "session_opened",
  "session_refused",
  "tools_listed",
  "guest_ended",
  "denials_counted",
  "connection",
  "egress",
  "token_made",
  "token_ended",
  "secret",
  "policy_loosened",
  "store_announced",
  "node_assigned",
  "node_ledger",
  "ledger_cut",
  "set_aside",
] as const satisfies ReadonlyArray<Query["event"]>;
export const STATES = ["ok", "denied", "failed", "cancelled", "unknown", "running"] as const satisfies ReadonlyArray<Query["status"]>;
export const EXACTLY = "exactly";

const NAMES = [...WORDS, "last", "since", "until"] as const;

export function filtersOf(query: URLSearchParams): Filters {
  return Object.fromEntries(NAMES.map((name) => [name, query.get(name) ?? ""])) as Filters;
}

/** The address of a search. */
export function searchHref(given: Partial<Filters>): string {
  const words = new URLSearchParams();
  for (const name of NAMES) if (given[name]) words.set(name, given[name]);
  return words.size ? `#/audit?${words}` : "#/audit";
}

/** The parameters of the API; times are those of this moment. */
export function parameters(given: Filters, now = Date.now()): Record<string, string> {
  const found: Record<string, string> = {};
  for (const name of WORDS) if (given[name]) found[name] = given[name];
  const last = LAST[given.last];
  if (last) found["since"] = new Date(now - last.seconds * 1000).toISOString();
  if (given.last === EXACTLY) {
    if (given.since) found["since"] = exact(given.since);
    if (given.until) found["until"] = exact(given.until);
  }
  return found;
}

/** A local time of a form as the API takes it; what is no time goes as it is, and is refused. */
function exact(local: string): string {
  const then = new Date(local);
  return Number.isNaN(then.getTime()) ? local : then.toISOString();
}

export function anySet(given: Filters): boolean {
  return NAMES.some((name) => given[name]);
}
