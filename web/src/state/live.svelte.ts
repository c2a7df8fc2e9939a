// One stream of what happens, for all screens: revision, states of servers, figures each second,
// approvals and ended calls. A hidden tab closes it, since browsers give a host six connections.

import { SvelteMap } from "svelte/reactivity";
import { addressOf } from "../api/client";
import { wasCancelled } from "../api/errors";
import type { ApprovalShown, CombinedStatus, EndedCall, Figures } from "../api/schema";
import { events } from "../api/stream";

const SECONDS = 120;
const CALLS = 200;
const HIDDEN_MS = 20_000;
const RETRY_MS = [500, 1000, 2000, 4000, 8000];

class Live {
  /** "connecting" at first, "open", or "lost" while it tries again. */
  state = $state<"connecting" | "open" | "lost" | "closed">("closed");
  revision = $state(0);
  statuses = new SvelteMap<string, CombinedStatus>();
  figures = $state.raw<Figures[]>([]);
  calls = $state.raw<EndedCall[]>([]);
  /** Questions that wait for somebody, by id. */
  pending = new SvelteMap<string, ApprovalShown>();
  /** Counts every step of an approval, so that a screen can follow it. */
  approvalSteps = $state(0);
  #ending: AbortController | null = null;
  #hidden: ReturnType<typeof setTimeout> | undefined;

  start(): void {
    document.addEventListener("visibilitychange", this.#onVisibility);
    this.#open();
  }

  stop(): void {
    document.removeEventListener("visibilitychange", this.#onVisibility);
    this.#close();
    this.statuses.clear();
    this.pending.clear();
    this.figures = [];
    this.calls = [];
  }

  #onVisibility = (): void => {
    clearTimeout(this.#hidden);
    if (document.hidden) this.#hidden = setTimeout(() => this.#close(), HIDDEN_MS);
    else if (!this.#ending) this.#open();
  };

  #open(): void {
    if (this.#ending) return;
    this.#ending = new AbortController();
    void this.#follow(this.#ending.signal);
  }

  #close(): void {
    this.#ending?.abort();
    this.#ending = null;
    this.state = "closed";
  }

  async #follow(signal: AbortSignal): Promise<void> {
    for (let failures = 0; !signal.aborted; failures++) {
      this.state = failures ? "lost" : "connecting";
      try {
        for await (const one of events("get", addressOf("/admin/api/live"), { signal })) {
          if (one.event === "hello") {
            failures = 0;
            this.state = "open";
            this.pending.clear();
          }
          this.#take(one.event, one.data);
        }
      } catch (error) {
        if (wasCancelled(error) || signal.aborted) return;
      }
      if (signal.aborted) return;
      this.state = "lost";
      const wait = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)] ?? 8000;
      await new Promise((done) => setTimeout(done, wait * (0.75 + Math.random() / 2)));
    }
  }

  #take(event: string, data: unknown): void {
    if (event === "hello" || event === "revision") {
      this.revision = (data as { revision: number }).revision;
    } else if (event === "status") {
      const { server_id, status } = data as { server_id: string; status: CombinedStatus };
      this.statuses.set(server_id, status);
    } else if (event === "figures") {
      this.figures = [...this.figures.slice(1 - SECONDS), data as Figures];
    } else if (event === "call") {
      this.calls = [data as EndedCall, ...this.calls.slice(0, CALLS - 1)];
    } else if (event === "approval") {
      this.#approval(data as ApprovalShown);
    }
  }

  #approval(one: ApprovalShown): void {
    if (one.state === "pending") this.pending.set(one.id, one);
    else this.pending.delete(one.id);
    this.approvalSteps++;
  }
}

export const live = new Live();
