// A conversation with a model that has the tools of a task, as any client would have it.

import { Refused, wasCancelled } from "../api/errors";
import { events } from "../api/stream";
import { clientToken, forgetToken } from "../state/caller.svelte";
import { session } from "../state/session.svelte";
import { take } from "./chunks";
import { Exchange } from "./exchange.svelte";

const UNAUTHENTICATED = 401;

export class Chat {
  task = $state("");
  model = $state("");
  draft = $state("");
  exchanges = $state<Exchange[]>([]);
  #owner: string | null = null;
  #under: AbortController | null = null;

  /** Begin anew where somebody else has signed in: a conversation is whoever's held it. */
  belongsTo(who: string): void {
    if (this.#owner !== null && this.#owner !== who) this.clear();
    this.#owner = who;
  }

  get last(): Exchange | undefined {
    return this.exchanges.at(-1);
  }

  /** Whether something is to come before more can be asked. */
  get busy(): boolean {
    return this.last?.state === "running" || this.last?.state === "parked";
  }

  async send(text: string): Promise<void> {
    if (this.busy || !text.trim()) return;
    const made = new Exchange(text, this.model, this.task, [...this.#history(), { role: "user", content: text }]);
    this.exchanges.push(made);
    await this.#talk(this.last ?? made);
  }

  /** Go on with a turn whose approvals were decided on. */
  async resume(): Promise<void> {
    const parked = this.last;
    const turn = parked?.summary?.paused?.resume;
    if (parked?.state !== "parked" || !turn) return;
    await this.#talk(parked, turn);
  }

  /** Ask the last question again, in place of what came of it. */
  async again(): Promise<void> {
    const gone = this.exchanges.pop();
    if (gone) await this.send(gone.asked);
  }

  stop(): void {
    this.#under?.abort();
    if (this.last?.state === "parked") this.last.state = "stopped";
  }

  clear(): void {
    this.stop();
    this.exchanges = [];
    this.draft = "";
  }

  #history(): Array<{ role: string; content: string }> {
    const whole = this.exchanges.filter((one) => one.answer && (one.state === "done" || one.state === "stopped"));
    return whole.flatMap((one) => [
      { role: "user", content: one.asked },
      { role: "assistant", content: one.answer },
    ]);
  }

  async #talk(one: Exchange, resume?: string): Promise<void> {
    const under = (this.#under = new AbortController());
    one.state = "running";
    one.error = undefined;
    one.awaited = false;
    try {
      await this.#hear(one, resume, under.signal);
      one.state = one.summary?.paused ? "parked" : "done";
    } catch (error) {
      const stopped = wasCancelled(error) || under.signal.aborted;
      // A parked turn that could not be resumed is still there to be resumed.
      const still = resume !== undefined && !stopped && !(error instanceof Refused && error.status === 404);
      one.state = stopped ? "stopped" : still ? "parked" : "failed";
      if (!stopped) one.error = error;
    } finally {
      one.flush();
      if (this.#under === under) this.#under = null;
    }
  }

  async #hear(one: Exchange, resume: string | undefined, signal: AbortSignal): Promise<void> {
    const body = {
      model: one.model,
      messages: one.messages,
      stream: true,
      stream_options: { include_usage: true },
      mcp: { show_calls: true, ...(resume ? { resume } : {}) },
    };
    for (let tries = 0; ; tries++) {
      const as = await clientToken(one.task);
      try {
        for await (const { data } of events("post", session.atNode("/v1/chat/completions"), { body, signal, as })) {
          if (data === "[DONE]") return;
          take(data, one);
        }
        throw new Error("The answer broke off: the connection ended before it was whole.");
      } catch (error) {
        const ended = error instanceof Refused && error.status === UNAUTHENTICATED;
        if (!ended || tries) throw error;
        forgetToken(one.task); // it ended before its hour: ask once more with another
      }
    }
  }
}
