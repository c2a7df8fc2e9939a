// What can go wrong between the page and the API, in words that a screen can show as they are.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

/** The API refused a request, and said why. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly details: JsonObject = {},
  ) {
    super(message);
  }

  /** Problems with their paths, as a validator names them: "stdio.command: is required". */
  get problems(): string[] {
    const found = this.details["problems"];
    return Array.isArray(found) ? found.filter((one) => typeof one === "string") : [];
  }
}

/** No answer came: the process is not there, or the network is not. */
export class Unreachable extends Error {
  constructor(message = "Bascule does not answer. Nothing was changed by this page; it tries again by itself.") {
    super(message);
  }
}

/** An answer came that is not one of Bascule's. */
export class Nonsense extends Error {
  constructor(readonly status: number) {
    super(`The answer (status ${status}) is not one of Bascule's. Nothing here was overwritten.`);
  }
}

/** Whether an error only says that the person or the page changed its mind. */
export function wasCancelled(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

export function wordsOf(error: unknown): string {
  if (error instanceof TypeError || error instanceof RangeError) {
    return `This page could not make sense of what came (${error.message}). Reload it: Bascule may be of another version now.`;
  }
  return error instanceof Error ? error.message : String(error);
}

/** The problems of a refusal by the path of the field that they are about; "" for all others. */
export function problemsByPath(error: unknown): Map<string, string[]> {
  const found = new Map<string, string[]>();
  if (!(error instanceof Refused)) return found;
  for (const problem of error.problems) {
    const [, path = "", words = problem] = /^([A-Za-z_][\w.[\]*"'-]*): (.*)$/s.exec(problem) ?? [];
    found.set(path, [...(found.get(path) ?? []), words]);
  }
  return found;
}
