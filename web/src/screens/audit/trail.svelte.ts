// The entries of a search: page after page backwards, and what happens from now on.

import { addressOf, asked } from "../../api/client";
import { Refused, wasCancelled } from "../../api/errors";
import type { AuditEntry, AuditPage } from "../../api/schema";
import { events } from "../../api/stream";
import { parameters, type Filters } from "./filters";
import { requestOf } from "./entries";

const PAGE = 100;
/** So many entries are kept while it follows; older ones can be fetched again. */
const KEPT = 1000;
const RETRY_MS = 2000;

export class Trail {
  entries = $state.raw<readonly AuditEntry[]>([]);
  /** Those that came while the reader was further down. */
  fresh = $state.raw<readonly AuditEntry[]>([]);
  error = $state.raw<unknown>(undefined);
  busy = $state(false);
  /** Below which row the next page begins; null when there is none. */
  before = $state<number | null>(null);
  loaded = $state(false);
  following = $state<"off" | "on" | "lost">("off");
  /** The last row that was seen; null begins with what comes. */
  #tip: number | null = null;
  /** Whether more came than is kept, so that there are rows between what came and what was there. */
  #gap = false;
  #under: AbortController | null = null;
  #watch: AbortController | null = null;

  constructor(readonly filters: Filters) {}

  /** Begin: the newest page, and then what happens. */
  async begin(follow: boolean): Promise<void> {
    await this.#fetch(null);
    if (follow && this.loaded) this.follow();
  }

  /** The page after. One page looks at a bounded number of rows, so it may take several. */
  async more(): Promise<void> {
    if (this.busy || this.before === null || this.error !== undefined) return;
    await this.#fetch(this.before);
  }

  /** Try again where it stopped. */
  async again(): Promise<void> {
    this.error = undefined;
    await this.#fetch(this.loaded ? this.before : null);
  }

  cancel(): void {
    this.#under?.abort();
  }

  end(): void {
    this.cancel();
    this.pause();
  }

  async #fetch(before: number | null): Promise<void> {
    const under = (this.#under = new AbortController());
    this.busy = true;
    try {
      let found = 0;
      do {
        const page = await this.#page(before, under.signal);
        if (!this.loaded) this.#tip = page.tip;
        this.loaded = true;
        this.entries = [...this.entries, ...page.entries];
        this.before = before = page.next_before;
        found += page.entries.length;
      } while (found < PAGE / 2 && before !== null);
    } catch (error) {
      if (!wasCancelled(error)) this.error = error;
    } finally {
      this.busy = false;
    }
  }

  async #page(before: number | null, signal: AbortSignal): Promise<AuditPage> {
    const query = { ...parameters(this.filters), before, limit: PAGE };
    return (await asked("get", addressOf("/admin/api/audit", undefined, query), { signal })).data as AuditPage;
  }

  follow(): void {
    if (this.#watch) return;
    this.#watch = new AbortController();
    void this.#followed(this.#watch.signal);
  }

  pause(): void {
    this.#watch?.abort();
    this.#watch = null;
    this.following = "off";
  }

  /** Show what came meanwhile. */
  take(): void {
    if (this.fresh.length === 0) return;
    const ended = new Set(this.fresh.map(requestOf).filter(Boolean));
    const before = this.#gap ? [] : this.entries;
    const kept = before.filter((one) => one.status !== "running" || !ended.has(requestOf(one)));
    const all = [...this.fresh, ...kept];
    const cut = this.#gap || all.length > KEPT;
    this.fresh = [];
    this.#gap = false;
    this.entries = all.slice(0, KEPT);
    const last = this.entries.at(-1);
    if (cut && last) this.before = last.number;
  }

  async #followed(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        await this.#watched(signal);
      } catch (error) {
        if (wasCancelled(error) || signal.aborted) return;
        if (error instanceof Refused && error.status < 500) {
          if (error.code === "compacted") this.#tip = null; // begin again with what comes
          this.error = error;
          this.pause();
          return;
        }
      }
      if (signal.aborted) return;
      this.following = "lost";
      await new Promise((done) => setTimeout(done, RETRY_MS));
    }
  }

  async #watched(signal: AbortSignal): Promise<void> {
    const { since: _, until: __, ...rest } = parameters(this.filters);
    const address = addressOf("/admin/api/audit/watch", undefined, { ...rest, after: this.#tip });
    this.following = "on";
    for await (const { event, data } of events("get", address, { signal })) {
      if (event === "bookmark") {
        this.#tip = (data as { number: number }).number;
      } else if (event === "message") {
        const entry = data as AuditEntry;
        this.#tip = entry.number;
        this.#gap ||= this.fresh.length >= KEPT;
        this.fresh = [entry, ...this.fresh].slice(0, KEPT);
      }
    }
  }
}
