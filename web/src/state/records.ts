// Records as screens use them: one with its ETag, all of a kind, and which fields the page knows.

import { asked } from "../api/client";
import type { JsonObject } from "../api/errors";
import type {
  BackendRecord,
  PlatformRecord,
  ProfileRecord,
  ServerRecord,
  TaskRecord,
  UserRecord,
} from "../api/schema";
import { COLLECTIONS, ownFields, recordAddress, type Kind } from "./draft.svelte";

export type Found = { record: JsonObject; etag: string | null };

export async function oneRecord(kind: Kind, id: string | null, signal?: AbortSignal): Promise<Found> {
  const { data, etag } = await asked("get", recordAddress(kind, id), { exact: true, ...(signal ? { signal } : {}) });
  return { record: data as JsonObject, etag };
}

/** A record as TOML, as a file would have it. */
export async function asToml(kind: Kind, id: string | null, signal?: AbortSignal): Promise<string> {
  const headers = { Accept: "application/toml" };
  return String((await asked("get", recordAddress(kind, id), signal ? { headers, signal } : { headers })).data);
}

export async function allRecords<T>(kind: Exclude<Kind, "platform">, signal?: AbortSignal): Promise<T[]> {
  const found: T[] = [];
  let cursor: string | null = null;
  do {
    const words: string = cursor ? `&cursor=${encodeURIComponent(cursor)}` : "";
    const address = `${recordAddress(kind, null)}?limit=1000${words}`;
    const page = (await asked("get", address, signal ? { signal } : {})).data as Record<string, unknown>;
    found.push(...(page[COLLECTIONS[kind]] as T[]));
    cursor = page["next_cursor"] as string | null;
  } while (cursor);
  return found;
}

type Known<T> = Record<keyof T, true>;
const KNOWN: Record<Kind, Record<string, true>> = {
  server: {
    server_id: true,
    transport: true,
    version: true,
    display_name: true,
    enabled: true,
    tags: true,
    tool_namespace: true,
    allowed_tools: true,
    sharing: true,
    prewarm: true,
    stdio: true,
    http: true,
    sandbox: true,
    effects: true,
    budgets: true,
    approval_policy: true,
    hygiene: true,
  } satisfies Known<ServerRecord>,
  task: {
    task_id: true,
    version: true,
    name: true,
    description: true,
    mcp: true,
    config: true,
    executable: true,
  } satisfies Known<TaskRecord>,
  profile: {
    name: true,
    version: true,
    description: true,
    environments: true,
    default_server_ids: true,
    allowed_server_ids: true,
    server_tags: true,
    tool_allowlist: true,
    tool_denylist: true,
    read_only: true,
  } satisfies Known<ProfileRecord>,
  user: {
    user_id: true,
    version: true,
    display_name: true,
    enabled: true,
    groups: true,
    own: true,
    enabled_server_ids: true,
    read_only: true,
    tool_allowlist: true,
    tool_denylist: true,
  } satisfies Known<UserRecord>,
  platform: {
    version: true,
    tool_denylist: true,
    default_approval: true,
    rules: true,
    ceilings: true,
    sandbox: true,
  } satisfies Known<PlatformRecord>,
  backend: {
    name: true,
    base_url: true,
    version: true,
    enabled: true,
    key_ref: true,
    headers: true,
    models: true,
    connect_timeout_ms: true,
    request_timeout_ms: true,
    insecure: true,
  } satisfies Known<BackendRecord>,
};

/** Fields that this page does not know: of a newer version, or somebody's own. */
export function unknownFields(kind: Kind, record: JsonObject): string[] {
  return Object.keys(ownFields(record)).filter((name) => !Object.hasOwn(KNOWN[kind], name));
}
