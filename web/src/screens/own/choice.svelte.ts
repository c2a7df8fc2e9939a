// What a person chose for themselves: it narrows what an administrator allows, and never adds.

import { patch, read } from "../../api/client";
import type { Integration, Integrations, Me, OwnTool } from "../../api/schema";
import { Loading } from "../../state/loading.svelte";

type Offer = { me: Me; offer: Integrations };
type Filters = NonNullable<NonNullable<Me["record"]>["own"]>;

export class Choice {
  readonly found = new Loading<Offer>(async (signal) => {
    const [me, offer] = await Promise.all([
      read("/api/v1/me", { signal }),
      read("/api/v1/me/integrations", { signal }),
    ]);
    return { me, offer };
  });
  /** Why the last switch was not taken; what is shown is what holds. */
  error = $state.raw<unknown>(undefined);
  /** Counts up where a switch did not do what it says, so that it shows what holds. */
  turn = $state(0);

  get own(): Filters {
    return this.found.data?.me.record?.own ?? {};
  }

  /** Whether there is somebody to choose, who is not refused. */
  get may(): boolean {
    return Boolean(this.found.data?.me.record && !this.found.data.me.refused);
  }

  /** Patterns that no switch here stands for. */
  get patterns(): string[] {
    const names = new Set(this.#all().flatMap((one) => one.tools.map((tool) => patternOf(one, tool))));
    const denied = (this.own.tool_denylist ?? []).filter((one) => !names.has(one));
    return [...(this.own.tool_allowlist ?? []).map((one) => `only ${one}`), ...denied];
  }

  readOnly(on: boolean): Promise<void> {
    return this.#choose({ read_only: on || null });
  }

  server(id: string, on: boolean): Promise<void> {
    const most = this.found.data?.me.record?.enabled_server_ids ?? this.#offered();
    const now = (this.own.enabled_server_ids ?? most).filter((one) => one !== id && most.includes(one));
    const next = on ? [...now, id] : now;
    const all = most.every((one) => next.includes(one));
    return this.#choose({ enabled_server_ids: all ? null : next });
  }

  tool(server: Integration, tool: OwnTool, on: boolean): Promise<void> {
    const name = patternOf(server, tool);
    const others = (this.own.tool_denylist ?? []).filter((one) => one !== name);
    const next = on ? others : [...others, name];
    const held = () => this.#all().flatMap((one) => one.tools).find((one) => one.name === tool.name)?.standing === (on ? "on" : "off");
    return this.#choose({ tool_denylist: next.length ? next : null }, held);
  }

  forgetPatterns(): Promise<void> {
    const kept = (this.own.tool_denylist ?? []).filter((one) => !this.patterns.includes(one));
    return this.#choose({ tool_allowlist: null, tool_denylist: kept.length ? kept : null });
  }

  async #choose(change: object, held = () => true): Promise<void> {
    this.error = undefined;
    try {
      await patch("/api/v1/me", { body: change as never });
      await this.found.load();
      if (!held()) this.turn += 1;
    } catch (error) {
      this.error = error;
      this.turn += 1;
    }
  }

  #all(): readonly Integration[] {
    return this.found.data?.offer.integrations ?? [];
  }

  #offered(): string[] {
    return this.#all().filter((one) => one.standing !== "withheld").map((one) => one.server_id);
  }
}

function patternOf(server: Integration, tool: OwnTool): string {
  return `${server.server_id}/${tool.tool_name}`;
}
