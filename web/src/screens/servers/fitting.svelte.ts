// A local server that is about to be imported: what it is granted, and whether it works so.

import type { NewLocalServer, Sandbox } from "../../api/schema";
import { LIMITS, confines, withGrant, withMissed, type Grant } from "./grants";
import { Trying } from "./trial.svelte";

export type Standing = "unconfined" | "untried" | "waiting" | "inside" | "outside" | "fits" | "misses" | "broken" | "failed";

/** How many servers are started at once: a browser has few connections to one address. */
const AT_ONCE = 3;
const TRIAL = "/admin/api/mcp/servers/test";

export class Fitting {
  readonly id: string;
  readonly given: Sandbox | null;
  /** Paths that its arguments name and its sandbox does not grant. */
  readonly offered: readonly string[];
  readonly confined: boolean;
  readonly inside = new Trying();
  /** The same with limits only: where that works, the sandbox is what it misses something in. */
  readonly outside = new Trying();
  loose = $state(false);
  waits = $state(false);
  /** What it would get, with what is granted here. */
  sandbox = $state.raw<Sandbox | null>(null);

  constructor({ server_id, sandbox, places }: NewLocalServer) {
    this.id = server_id;
    this.given = this.sandbox = sandbox;
    this.confined = confines(sandbox);
    const granted = new Set([...(sandbox?.read ?? []), ...(sandbox?.write ?? [])]);
    this.offered = this.confined ? places.filter((one) => !granted.has(one)) : [];
  }

  /** What is written instead of the sandbox that it would get; null where that stays. */
  get chosen(): Sandbox | null {
    if (this.loose) return LIMITS;
    return JSON.stringify(this.sandbox) === JSON.stringify(this.given) ? null : this.sandbox;
  }

  /** The sandbox that grants what it missed, where that can be granted. */
  get wider(): Sandbox | null {
    return withMissed(this.sandbox, this.inside.result?.missed ?? []);
  }

  get standing(): Standing {
    if (!this.confined) return "unconfined";
    if (this.outside.busy) return "outside";
    if (this.inside.busy) return "inside";
    if (this.waits) return "waiting";
    if (this.inside.error !== undefined || this.outside.error !== undefined) return "failed";
    if (this.inside.result?.ok) return "fits";
    if (this.unfetched) return "broken";
    if (this.outside.result) return this.outside.result.ok ? "misses" : "broken";
    return "untried";
  }

  /** Whether its packages did not come: nothing of it ran, nor should it outside of its sandbox. */
  get unfetched(): boolean {
    return this.inside.result?.ok === false && this.inside.result.steps.at(-1)?.step === "fetch";
  }

  get busy(): boolean {
    return this.waits || this.inside.busy || this.outside.busy;
  }

  grant(place: string, to: Grant): void {
    this.give(withGrant(this.sandbox, place, to));
  }

  /** Give it another sandbox: what was tried with the one before says nothing any more. */
  give(sandbox: Sandbox): void {
    this.sandbox = sandbox;
    this.loose = false;
    this.inside.forget();
    this.outside.forget();
  }

  /** Try it as it would be written, and where that fails with limits only. */
  async run(text: string): Promise<void> {
    if (!this.waits) return;
    this.waits = false;
    this.outside.forget();
    const inside = await this.inside.run(TRIAL, { text, server_id: this.id, sandbox: this.sandbox });
    if (inside && !inside.ok && !this.unfetched) await this.outside.run(TRIAL, { text, server_id: this.id, sandbox: LIMITS });
  }

  cancel(): void {
    this.waits = false;
    this.inside.cancel();
    this.outside.cancel();
  }
}

/** Try servers of a text, some at a time. */
export async function tryAll(all: readonly Fitting[], text: string): Promise<void> {
  const waiting = [...all];
  for (const one of waiting) one.waits = true;
  const work = async (): Promise<void> => {
    for (let one; (one = waiting.shift()); ) await one.run(text);
  };
  await Promise.all(waiting.slice(0, AT_ONCE).map(work));
}
