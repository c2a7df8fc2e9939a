// A record while it is edited: what came from the registry, what the person made of it, and the
// problems that the API names by path. Fields that no form knows stay as they are.

import { asked } from "../api/client";
import { Refused, problemsByPath, type Json, type JsonObject } from "../api/errors";
import { copied } from "../api/json";
import type { RevisionDiff } from "../api/schema";

export type Kind = "server" | "task" | "profile" | "user" | "platform" | "backend";
export const COLLECTIONS: Record<Kind, string> = {
  server: "servers",
  task: "tasks",
  profile: "profiles",
  user: "users",
  platform: "platform",
  backend: "backends",
};
/** What the API shows beside a record's own fields. */
const BESIDE = ["status", "revision", "updated_at", "owner"];

export type Conflict = { theirs: JsonObject; etag: string | null };
export type DryRun = { revision: number; diff: RevisionDiff; warnings: string[] };

export class Draft {
  value = $state<JsonObject>({});
  error = $state.raw<unknown>(undefined);
  busy = $state(false);
  conflict = $state.raw<Conflict | null>(null);
  #base = $state.raw<JsonObject>({});
  /** What is wrong with it as it stands, said before anybody saves. */
  #noticed = $state.raw<string[]>([]);
  #etag: string | null;
  #aside: JsonObject = {};

  constructor(
    readonly kind: Kind,
    /** Null for a record that is to be made. */
    readonly id: string | null,
    record: JsonObject,
    etag: string | null = null,
  ) {
    this.#base = ownFields(record);
    this.#etag = etag;
    this.value = copied(this.#base);
  }

  get changed(): boolean {
    return JSON.stringify(this.value) !== JSON.stringify(this.#base);
  }

  get problems(): Map<string, string[]> {
    const found = problemsByPath(this.error);
    return found.size || !this.#noticed.length ? found : problemsByPath(new Refused(422, "", "", { problems: this.#noticed }));
  }

  /** Show problems at their fields that were found while it is edited. */
  notice(problems: string[]): void {
    if (problems.join("\n") !== this.#noticed.join("\n")) this.#noticed = problems;
  }

  get base(): JsonObject {
    return this.#base;
  }

  /** The version that it began with. */
  get etag(): string | null {
    return this.#etag;
  }

  /** The value at a path such as "stdio.command". */
  at(path: string): Json | undefined {
    let found: Json | undefined = this.value;
    for (const key of path.split(".")) {
      if (found === null || typeof found !== "object" || Array.isArray(found)) return undefined;
      found = Object.hasOwn(found, key) ? found[key] : undefined;
    }
    return found;
  }

  /** Set a value; undefined takes the field away, and with it objects that become empty. */
  set(path: string, value: Json | undefined): void {
    this.value = changed(this.value, path.split("."), value);
  }

  /** Put a field aside, which is then not sent, for one that may have been put aside before. */
  exchange(field: string, other: string): void {
    const { [field]: left, ...others } = copied(this.value);
    const back = this.#aside[other];
    if (left !== undefined) this.#aside[field] = left;
    this.value = back === undefined || Object.hasOwn(others, other) ? others : { ...others, [other]: back };
  }

  reset(): void {
    this.value = copied(this.#base);
    this.error = undefined;
    this.#aside = {};
  }

  /** Say what saving would change, access included; nothing is written. */
  async preview(): Promise<DryRun | null> {
    return (await this.#sent({ dry_run: true })) as DryRun | null;
  }

  /** Write it; null where it was refused (`error`) or somebody else wrote first (`conflict`). */
  async save(): Promise<{ revision: number; warnings: string[] } | null> {
    const saved = (await this.#sent({})) as { revision: number; warnings: string[] } | null;
    if (saved) this.#base = copied(this.value);
    return saved;
  }

  /** Go on from what somebody else wrote: with one's own edits on top, or without them. */
  settle(keep: "mine" | "theirs"): void {
    if (!this.conflict) return;
    const mine = copied(this.value);
    this.#base = ownFields(this.conflict.theirs);
    this.#etag = this.conflict.etag;
    this.value = keep === "mine" ? mine : copied(this.#base);
    this.conflict = null;
    this.error = undefined;
  }

  async #sent(query: object): Promise<unknown> {
    this.busy = true;
    this.error = undefined;
    try {
      const body = copied(this.value);
      const words = new URLSearchParams(Object.entries(query).map(([k, v]) => [k, String(v)]));
      const address = `${this.address}${words.size ? `?${words}` : ""}`;
      const made = this.id === null && this.kind !== "platform";
      const guard = made ? {} : this.#etag ? { ifMatch: this.#etag } : {};
      return (await asked(made ? "post" : "put", address, { body, ...guard })).data;
    } catch (error) {
      if (error instanceof Refused && error.status === 412 && this.id !== null) await this.#collide();
      else this.error = error;
      return null;
    } finally {
      this.busy = false;
    }
  }

  get address(): string {
    return recordAddress(this.kind, this.id);
  }

  async #collide(): Promise<void> {
    try {
      const { data, etag } = await asked("get", this.address, { exact: true });
      this.conflict = { theirs: data as JsonObject, etag };
    } catch (error) {
      this.error = error;
    }
  }
}

export function recordAddress(kind: Kind, id: string | null): string {
  const above = `/admin/api/mcp/${COLLECTIONS[kind]}`;
  return id === null || kind === "platform" ? above : `${above}/${encodeURIComponent(id)}`;
}

export function ownFields(record: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(record).filter(([name]) => !BESIDE.includes(name)));
}

function changed(value: JsonObject, [key, ...rest]: string[], to: Json | undefined): JsonObject {
  if (key === undefined) return value;
  const { [key]: left, ...others } = value;
  const old = Object.hasOwn(value, key) ? left : undefined;
  let now: Json | undefined = to;
  if (rest.length) {
    const inner = old !== null && typeof old === "object" && !Array.isArray(old) ? old : {};
    const made = changed(inner, rest, to);
    now = Object.keys(made).length ? made : undefined;
  }
  if (now === undefined) return others;
  return Object.hasOwn(value, key) ? { ...value, [key]: now } : { ...others, [key]: now };
}
