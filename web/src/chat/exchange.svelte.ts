// One question and its answer: text as it comes, and the calls that were made for it.

import { read } from "../api/client";
import { deciderOf } from "../parts/approval/standing";
import type { Listener, Report, Started, Summary } from "./chunks";

const FLUSH_MS = 60;
export const APPROVAL_REQUIRED = "mcp_approval_required";

export class Call {
  state = $state<"running" | "waiting" | "ended">("running");
  report = $state.raw<Report | null>(null);
  result = $state.raw<string | null>(null);
  approval = $state<string | null>(null);
  /** Who decided on it, and why, where somebody was asked. */
  decided = $state.raw<{ by: string; reason: string; verb: string } | null>(null);
  readonly begun = Date.now();

  constructor(readonly asked: Started) {}

  get name(): string {
    return this.asked.tool || this.asked.name;
  }

  end(report: Report, result: string | null): void {
    this.report = report;
    this.result = result;
    if (report.error === APPROVAL_REQUIRED) this.approval ??= approvalIn(result);
    this.state = report.error === APPROVAL_REQUIRED && this.approval ? "waiting" : "ended";
    if (this.approval && this.state === "ended") void this.#learn(this.approval);
  }

  async #learn(id: string): Promise<void> {
    const one = await read("/admin/api/approvals/{id}", { path: { id } }).catch(() => null);
    const by = one && deciderOf(one);
    if (one?.decided && by) this.decided = { by, reason: one.decided.reason, verb: one.decided.decision };
  }
}

/** The question that a call stopped at: nobody says that it waits where nobody waits for it. */
function approvalIn(result: string | null): string | null {
  try {
    const { error } = JSON.parse(result ?? "") as { error?: { details?: { approval_id?: string } } };
    return error?.details?.approval_id ?? null;
  } catch {
    return null;
  }
}

export class Exchange implements Listener {
  answer = $state("");
  calls = $state<Call[]>([]);
  state = $state<"running" | "parked" | "done" | "stopped" | "failed">("running");
  error = $state.raw<unknown>(undefined);
  summary = $state.raw<Summary | null>(null);
  tokens = $state(0);
  reason = $state<string | null>(null);
  /** Whether a question of a parked turn was seen to wait: then its end is news. */
  awaited = $state(false);
  #unshown = "";
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly asked: string,
    readonly model: string,
    readonly task: string,
    /** What the model is sent: the same again when a turn is resumed. */
    readonly messages: ReadonlyArray<{ role: string; content: string }>,
  ) {}

  /** The calls, by the turns of the model in which they were asked for. */
  get turns(): Array<{ turn: number; calls: Call[] }> {
    const found = new Map<number, Call[]>();
    for (const call of this.calls) found.set(call.asked.turn, [...(found.get(call.asked.turn) ?? []), call]);
    return [...found].map(([turn, calls]) => ({ turn, calls }));
  }

  /** The questions that a parked turn waits for. */
  get questions(): string[] {
    return this.summary?.paused?.approvals.map((one) => one.approval_id) ?? [];
  }

  // Pieces come faster than a screen can be drawn: they are shown a few times a second.
  text(more: string): void {
    this.#unshown += more;
    this.#timer ??= setTimeout(() => this.flush(), FLUSH_MS);
  }

  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.answer += this.#unshown;
    this.#unshown = "";
  }

  started(call: Started): void {
    const again = this.#open(call.call_id);
    if (again) again.state = "running";
    else this.calls.push(new Call(call));
  }

  waits(call: Started, approval: string): void {
    const found = this.#open(call.call_id);
    if (!found) return;
    found.approval = approval;
    found.state = "waiting";
  }

  finished(report: Report, result: string | null): void {
    this.#open(report.call_id)?.end(report, result);
  }

  used(tokens: number): void {
    this.tokens += tokens;
  }

  ended(reason: string | null, summary: Summary | null): void {
    this.reason = reason ?? this.reason;
    this.summary = summary ?? this.summary;
    if (!summary || summary.paused) return;
    for (const call of this.calls) if (call.report) call.state = "ended"; // nothing is waited for
  }

  #open(id: string): Call | undefined {
    return this.calls.findLast((call) => call.asked.call_id === id && call.state !== "ended");
  }
}
