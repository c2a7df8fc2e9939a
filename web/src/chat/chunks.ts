// What a streamed answer of the chat door says: pieces of text, and what Bascule adds beside them.

import { Refused } from "../api/errors";

export type Report = {
  call_id: string;
  name: string;
  server: string;
  tool: string;
  status: "ok" | "denied" | "failed" | "unknown" | "cancelled";
  error: string | null;
  duration_ms: number | null;
  request_id: string;
};
export type Budget = { used: number; limit: number };
export type Summary = {
  calls: Report[];
  warnings: string[];
  budgets: Record<string, Budget>;
  budget_hit: string | null;
  paused: { resume: string; approvals: Array<{ approval_id: string; expires_at: string }> } | null;
};
export type Started = Pick<Report, "call_id" | "name" | "server" | "tool"> & { turn: number; arguments: string };
type Note =
  | ({ event: "call_started" } & Started)
  | ({ event: "approval_waiting"; approval_id: string } & Started)
  | ({ event: "call_finished"; result?: string } & Report)
  | { event: "parked" };
type Chunk = {
  choices?: Array<{ delta?: { content?: string | null; refusal?: string | null }; finish_reason?: string | null }>;
  usage?: { total_tokens?: number } | null;
  bascule?: Note | Summary;
  error?: { message?: string; code?: string | null };
};

/** Who takes in an answer as it comes. */
export type Listener = {
  text(more: string): void;
  started(call: Started): void;
  waits(call: Started, approval: string): void;
  finished(report: Report, result: string | null): void;
  used(tokens: number): void;
  ended(reason: string | null, summary: Summary | null): void;
};

const FAILED = 502; // a stream that has begun has no status of its own

/** Take in one event; raise Refused where it says that the answer broke off. */
export function take(data: unknown, listener: Listener): void {
  const chunk = data as Chunk;
  if (chunk.error) throw new Refused(FAILED, chunk.error.code ?? "", chunk.error.message ?? "the answer broke off");
  if (typeof chunk.usage?.total_tokens === "number") listener.used(chunk.usage.total_tokens);
  const note = chunk.bascule;
  const parked = note !== undefined && "event" in note && note.event === "parked";
  const choice = chunk.choices?.[0];
  const said = choice?.delta?.content ?? choice?.delta?.refusal;
  if (said && !parked) listener.text(said); // that the turn is parked, the page says itself
  if (note && "event" in note) told(note, listener);
  const summary = note && !("event" in note) ? note : null;
  if (summary || choice?.finish_reason) listener.ended(choice?.finish_reason ?? null, summary);
}

function told(note: Note, listener: Listener): void {
  if (note.event === "call_started") listener.started(note);
  else if (note.event === "approval_waiting") listener.waits(note, note.approval_id);
  else if (note.event === "call_finished") listener.finished(note, note.result ?? null);
}
