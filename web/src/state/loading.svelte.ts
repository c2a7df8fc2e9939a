// What a screen shows is fetched: it is loading, there, or could not be had. What was there stays
// while it is fetched again.

import { Nonsense, wasCancelled } from "../api/errors";

export class Loading<T> {
  data = $state.raw<T | undefined>(undefined);
  error = $state.raw<unknown>(undefined);
  busy = $state(false);
  #fetch: (signal: AbortSignal) => Promise<T>;
  #under: AbortController | null = null;

  constructor(fetch: (signal: AbortSignal) => Promise<T>) {
    this.#fetch = fetch;
  }

  /** Fetch; a fetch that is under way is given up for it. */
  async load(): Promise<void> {
    this.#under?.abort();
    const under = (this.#under = new AbortController());
    this.busy = true;
    try {
      const data = await this.#fetch(under.signal);
      if (under.signal.aborted) return;
      if (data === undefined) throw new Nonsense(200);
      this.data = data;
      this.error = undefined;
    } catch (error) {
      if (wasCancelled(error) || under.signal.aborted) return;
      this.error = error;
    } finally {
      if (this.#under === under) {
        this.busy = false;
        this.#under = null;
      }
    }
  }

  cancel(): void {
    this.#under?.abort();
    this.#under = null;
    this.busy = false;
  }
}

/** Fetch when the screen opens and whenever what `fetch` reads before its first await changes. */
export function loading<T>(fetch: (signal: AbortSignal) => Promise<T>, again?: () => unknown): Loading<T> {
  const made = new Loading(fetch);
  $effect(() => {
    again?.();
    void made.load();
    return () => made.cancel();
  });
  return made;
}
