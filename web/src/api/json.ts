// JSON with every digit. A browser rounds whole numbers beyond 2^53 when it reads them, so a record
// that is shown and saved again would come back with others: they are kept as they are written.

import type { Json } from "./errors";

declare global {
  interface JSON {
    /** A text that `stringify` writes as it is; browsers before 2025 may not have it. */
    rawJSON?(text: string): unknown;
  }
}

type Reviver = (this: unknown, key: string, value: unknown, context?: { source?: string }) => unknown;
const LONG = /(?:^|[[:,\s])-?\d{16}/;
const WHOLE = /^-?(?:0|[1-9]\d*)$/;

/** A whole number of more digits than a browser's numbers have. */
class Digits {
  constructor(readonly text: string) {}

  toJSON(): unknown {
    return JSON.rawJSON?.(this.text) ?? Number(this.text);
  }

  toString(): string {
    return this.text;
  }
}

/** Read a text; raises SyntaxError as `JSON.parse` does. */
export function parsed(text: string): unknown {
  return LONG.test(text) ? JSON.parse(text, kept as (key: string, value: unknown) => unknown) : JSON.parse(text);
}

const kept: Reviver = (_, value, context) => {
  const source = context?.source;
  const exact = typeof value !== "number" || source === undefined || !WHOLE.test(source) || String(value) === source;
  return exact ? value : new Digits(source);
};

/** A copy that shares nothing, and is no longer watched. */
export function copied<T>(value: T): T {
  return parsed(JSON.stringify(value)) as T;
}

/** What somebody typed into a field for a number; the text itself where it is none. */
export function numberOf(text: string): Json {
  const typed = text.trim();
  if (WHOLE.test(typed)) return parsed(typed) as Json;
  return typed !== "" && Number.isFinite(Number(typed)) ? Number(typed) : text;
}
