// A trial of a server, step by step as they happen; it ends when one changes one's mind.

import { wasCancelled } from "../../api/errors";
import type { Trial, TrialStep } from "../../api/schema";
import { events } from "../../api/stream";

export class Trying {
  steps = $state.raw<TrialStep[]>([]);
  result = $state.raw<Trial | null>(null);
  error = $state.raw<unknown>(undefined);
  cancelled = $state(false);
  busy = $state(false);
  #under: AbortController | null = null;

  /** Try a server that is there, or with a body a draft; the trial, or null where there was none. */
  async run(address: string, body?: unknown): Promise<Trial | null> {
    this.#under?.abort();
    const under = (this.#under = new AbortController());
    [this.steps, this.result, this.error, this.cancelled, this.busy] = [[], null, undefined, false, true];
    try {
      for await (const one of events("post", address, { signal: under.signal, ...(body === undefined ? {} : { body }) })) {
        if (one.event === "step") this.steps = [...this.steps, one.data as TrialStep];
        else if (one.event === "result") this.result = one.data as Trial;
        else if (one.event === "error") throw new Error(said(one.data));
      }
      if (!this.result) throw new Error("The trial ended without a result. Run it again.");
    } catch (error) {
      if (this.#under !== under) return null;
      if (wasCancelled(error)) this.cancelled = true;
      else this.error = error;
    } finally {
      if (this.#under === under) [this.busy, this.#under] = [false, null];
    }
    return this.result;
  }

  cancel(): void {
    this.#under?.abort();
  }

  /** What was tried has changed: what came of it says nothing any more. */
  forget(): void {
    this.#under?.abort();
    this.#under = null;
    [this.steps, this.result, this.error, this.cancelled, this.busy] = [[], null, undefined, false, false];
  }
}

function said(data: unknown): string {
  const found = (data as { error?: { message?: unknown } } | null)?.error?.message;
  return typeof found === "string" ? found : "The trial broke off.";
}
