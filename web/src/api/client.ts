// One way to the API. Paths, parameters, bodies and answers are typed by the generated schema, so
// that a change of the API which the page does not follow fails the build.
//
// A 401 asks the person to sign in again and repeats the request: nothing typed is lost. A refusal
// for want of a fresh code asks for one likewise.

import { Nonsense, Refused, Unreachable, wasCancelled, type JsonObject } from "./errors";
import { parsed } from "./json";
import type { paths } from "./schema";

export type Method = "get" | "put" | "post" | "delete" | "patch";
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
type Extra = {
  signal?: AbortSignal;
  ifMatch?: string | null;
  ifNoneMatch?: "*";
  /** A token other than the page's own: a refusal of it is the caller's to handle. */
  as?: string | null;
  /** The answer is edited and sent back: its numbers stay as they are written. */
  exact?: boolean;
};
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
  /** Ask the person for a fresh code of `bascule web --confirm`; `refused` was not, or not any more. */
  confirm(message: string, refused: string | undefined): Promise<string>;
  reached(yes: boolean): void;
};

const JSON_TYPE = "application/json";
const CONFIRM = "X-Bascule-Confirm";
const NODE_AWAY = "The node does not answer, or does not let this page in: start it with --admin-origin.";
/** How often a node elsewhere is asked again that has not heard of a new token yet, and how soon. */
const UNHEARD_TRIES = 10;
const UNHEARD_MS = 500;

let door: Door = {
  token: () => null,
  renew: () => Promise.reject(new Unreachable()),
  confirm: () => Promise.reject(new Unreachable()),
  reached: () => {},
};

export function useDoor(given: Door): void {
  door = given;
}

/** The body of a GET; raises Refused, Unreachable or Nonsense, as all of these do. */
export async function read<P extends keyof paths>(
  path: P,
  request?: Request<paths[P]["get"]>,
): Promise<Answer<paths[P]["get"]>> {
  return (await ask("get", path, request)) as Answer<paths[P]["get"]>;
}

/** The answer to a POST. */
export async function post<P extends keyof paths>(
  path: P,
  request?: Request<paths[P]["post"]>,
): Promise<Answer<paths[P]["post"]>> {
  return (await ask("post", path, request)) as Answer<paths[P]["post"]>;
}

export async function put<P extends keyof paths>(
  path: P,
  request?: Request<paths[P]["put"]>,
): Promise<Answer<paths[P]["put"]>> {
  return (await ask("put", path, request)) as Answer<paths[P]["put"]>;
}

export async function patch<P extends keyof paths>(
  path: P,
  request?: Request<paths[P]["patch"]>,
): Promise<Answer<paths[P]["patch"]>> {
  return (await ask("patch", path, request)) as Answer<paths[P]["patch"]>;
}

export async function remove<P extends keyof paths>(
  path: P,
  request?: Request<paths[P]["delete"]>,
): Promise<Answer<paths[P]["delete"]>> {
  return (await ask("delete", path, request)) as Answer<paths[P]["delete"]>;
}

async function ask(method: Method, path: string, loose: Loose = {}): Promise<unknown> {
  return (await asked(method, addressOf(path, loose.path, loose.query), loose)).data;
}

/** Ask any address of this origin, for records of any kind and for streams. */
export async function asked(method: Method, address: string, loose: Loose = {}): Promise<Reply<unknown>> {
  const response = await fetched(method, address, loose);
  const data = await bodyOf(response, loose);
  return { data, etag: response.headers.get("etag"), status: response.status };
}

/** Ask, and return the answer as it comes, once it is known not to be a refusal. */
export async function fetched(method: Method, address: string, loose: Loose = {}): Promise<Response> {
  let headers = headersOf(loose);
  for (let tries = 0; ; tries++) {
    const token = loose.as !== undefined ? loose.as : isElsewhere(address) ? null : door.token();
    const response = await sent(method, address, loose, { ...headers, ...bearer(token) });
    if (response.ok || response.status === 304) return response;
    const refused = await refusalOf(response);
    if (refused.status === 401 && loose.as === undefined && tries < 3) {
      await door.renew(token);
    } else if (refused.status === 401 && isElsewhere(address) && tries < UNHEARD_TRIES) {
      await pause(UNHEARD_MS, loose.signal);
    } else if (refused.code === "confirmation_required" && tries < 3) {
      headers = { ...headers, [CONFIRM]: await door.confirm(refused.message, headers[CONFIRM]) };
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
    if (!isElsewhere(address)) door.reached(true);
    return response;
  } catch (error) {
    if (wasCancelled(error)) throw error;
    if (isElsewhere(address)) throw new Unreachable(NODE_AWAY);
    door.reached(false);
    throw new Unreachable();
  }
}

/** Whether an address is of another origin: that of a node, to which the page's own token never goes. */
function isElsewhere(address: string): boolean {
  return new URL(address, location.href).origin !== location.origin;
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((done, failed) => {
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      failed(new DOMException("cancelled", "AbortError"));
    });
  });
}

function headersOf({ body, headers, ifMatch, ifNoneMatch }: Loose): Record<string, string> {
  const made: Record<string, string> = { Accept: JSON_TYPE, ...headers };
  if (body !== undefined) made["Content-Type"] = JSON_TYPE;
  if (ifMatch) made["If-Match"] = ifMatch;
  if (ifNoneMatch) made["If-None-Match"] = ifNoneMatch;
  return made;
}

function bearer(token: string | null): Record<string, string> {
  return token === null ? {} : { Authorization: `Bearer ${token}` };
}

async function bodyOf(response: Response, { headers, exact }: Loose): Promise<unknown> {
  const wanted = headers?.["Accept"] ?? JSON_TYPE;
  if (response.status === 204 || response.status === 304) return undefined;
  const text = await response.text();
  // Whatever else comes with a good status is of somebody between: a proxy that asks to sign in.
  if (!response.headers.get("content-type")?.startsWith(wanted)) throw new Nonsense(response.status);
  if (wanted !== JSON_TYPE) return text;
  try {
    return parsed(text, exact);
  } catch {
    throw new Nonsense(response.status);
  }
}

async function refusalOf(response: Response): Promise<Refused> {
  try {
    const body = parsed(await response.text());
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
