// One way to the API. Paths, parameters, bodies and answers are typed by the generated schema, so
// that a change of the API which the page does not follow fails the build.
//
// A 401 asks the person to sign in again and repeats the request: nothing typed is lost. A refusal
// for want of a fresh code asks for one likewise.

import { Nonsense, Refused, Unreachable, wasCancelled, type JsonObject } from "./errors";
import type { paths } from "./schema";

export type Method = "get" | "put" | "post" | "delete" | "patch";
type Operation<P extends keyof paths, M extends Method> = NonNullable<paths[P][M]>;
type Content<R> = R extends { content: { "application/json": infer B } } ? B : undefined;
export type Answer<O> = O extends { responses: infer R }
  ? R extends { 200: infer Ok }
    ? Content<Ok>
    : R extends { 201: infer Made }
      ? Content<Made>
      : undefined
  : never;
type BodyOf<O> = O extends { requestBody: { content: { "application/json": infer B } } }
  ? { body: B }
  : { body?: unknown };
type PathOf<O> = O extends { parameters: { path: infer V extends object } } ? { path: V } : { path?: undefined };
type QueryOf<O> = O extends { parameters: { query?: infer Q } } ? { query?: Q } : { query?: undefined };
type Extra = { signal?: AbortSignal; ifMatch?: string | null; ifNoneMatch?: "*" };
export type Request<O> = PathOf<O> & QueryOf<O> & BodyOf<O> & Extra;

export type Reply<T> = { data: T; etag: string | null; status: number };

type Loose = {
  path?: object | undefined;
  query?: object | undefined;
  body?: unknown;
  headers?: Record<string, string>;
} & Extra;

/** What the client needs of the page's session; it is given by `state/session`. */
export type Door = {
  token(): string | null;
  /** Ask the person to sign in again; resolves when they did. */
  renew(stale: string | null): Promise<void>;
  /** Ask the person for a fresh code of `bascule web --confirm`. */
  confirm(message: string): Promise<string>;
  reached(yes: boolean): void;
};

let door: Door = {
  token: () => null,
  renew: () => Promise.reject(new Unreachable()),
  confirm: () => Promise.reject(new Unreachable()),
  reached: () => {},
};

export function useDoor(given: Door): void {
  door = given;
}

/** Ask the API; raises Refused, Unreachable or Nonsense. */
export async function ask<M extends Method, P extends keyof paths>(
  method: M,
  path: P,
  ...[request]: Partial<Request<Operation<P, M>>> extends Request<Operation<P, M>>
    ? [Request<Operation<P, M>>?]
    : [Request<Operation<P, M>>]
): Promise<Reply<Answer<Operation<P, M>>>> {
  const loose = (request ?? {}) as Loose;
  return (await asked(method, addressOf(path, loose.path, loose.query), loose)) as Reply<
    Answer<Operation<P, M>>
  >;
}

/** The body of a GET. */
export async function read<P extends keyof paths>(
  path: P,
  ...request: Parameters<typeof ask<"get", P>> extends [unknown, unknown, ...infer R] ? R : never
): Promise<Answer<Operation<P, "get">>> {
  const all = ["get", path, ...request] as unknown as Parameters<typeof ask<"get", P>>;
  return (await ask(...all)).data;
}

/** Ask any address of this origin, for records of any kind and for streams. */
export async function asked(method: Method, address: string, loose: Loose = {}): Promise<Reply<unknown>> {
  const response = await fetched(method, address, loose);
  const data = await bodyOf(response);
  return { data, etag: response.headers.get("etag"), status: response.status };
}

/** Ask, and return the answer as it comes, once it is known not to be a refusal. */
export async function fetched(method: Method, address: string, loose: Loose = {}): Promise<Response> {
  let headers = headersOf(loose);
  for (let tries = 0; ; tries++) {
    const token = door.token();
    const response = await sent(method, address, loose, { ...headers, ...bearer(token) });
    if (response.ok || response.status === 304) return response;
    const refused = await refusalOf(response);
    if (refused.status === 401 && tries < 3) {
      await door.renew(token);
    } else if (refused.code === "confirmation_required" && tries < 3) {
      headers = { ...headers, "X-Bascule-Confirm": await door.confirm(refused.message) };
    } else {
      throw refused;
    }
  }
}

async function sent(
  method: Method,
  address: string,
  { body, signal }: Loose,
  headers: Record<string, string>,
): Promise<Response> {
  const init: RequestInit = { method: method.toUpperCase(), headers, cache: "no-store", credentials: "omit" };
  if (body !== undefined) init.body = JSON.stringify(body);
  if (signal) init.signal = signal;
  try {
    const response = await fetch(address, init);
    door.reached(true);
    return response;
  } catch (error) {
    if (wasCancelled(error)) throw error;
    door.reached(false);
    throw new Unreachable();
  }
}

function headersOf({ body, headers, ifMatch, ifNoneMatch }: Loose): Record<string, string> {
  const made: Record<string, string> = { Accept: "application/json", ...headers };
  if (body !== undefined) made["Content-Type"] = "application/json";
  if (ifMatch) made["If-Match"] = ifMatch;
  if (ifNoneMatch) made["If-None-Match"] = ifNoneMatch;
  return made;
}

function bearer(token: string | null): Record<string, string> {
  return token === null ? {} : { Authorization: `Bearer ${token}` };
}

async function bodyOf(response: Response): Promise<unknown> {
  if (response.status === 204 || response.status === 304) return undefined;
  const text = await response.text();
  if (!response.headers.get("content-type")?.startsWith("application/json")) return text;
  try {
    return JSON.parse(text);
  } catch {
    throw new Nonsense(response.status);
  }
}

async function refusalOf(response: Response): Promise<Refused> {
  try {
    const body: unknown = JSON.parse(await response.text());
    const { error } = body as { error: { code: string; message: string; details?: JsonObject } };
    if (typeof error.code === "string" && typeof error.message === "string") {
      return new Refused(response.status, error.code, error.message, error.details ?? {});
    }
  } catch {
    // not JSON, or not of our shape: said below
  }
  throw new Nonsense(response.status);
}

/** An address with its path and query filled in; what is undefined is left out. */
export function addressOf(path: string, values?: object, query?: object): string {
  const known: Record<string, unknown> = { ...values };
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(known[name])));
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null) words.append(name, String(one));
    }
  }
  const text = words.toString();
  return text ? `${filled}?${text}` : filled;
}
