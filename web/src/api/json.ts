// JSON with every digit. A browser rounds whole numbers beyond 2^53 when it reads them and writes 1.0
// as 1, so a record that is shown and saved again would come back with others: where it matters,
// numbers are kept as they are written.

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

/** A number that a browser would write in other digits. */
class Digits {
  constructor(readonly text: string) {}

  toJSON(): unknown {
    return JSON.rawJSON?.(this.text) ?? Number(this.text);
  }

  /** As people read it: 30.0 is 30. */
  toString(): string {
    return WHOLE.test(this.text) ? this.text : String(Number(this.text));
  }
}

/**
 * Read a text; raises SyntaxError as `JSON.parse` does. Whole numbers are never rounded; with `exact`,
 * for what is going to be sent back, every number stays as it is written.
 */
export function parsed(text: string, exact = false): unknown {
  if (!exact && !LONG.test(text)) return JSON.parse(text);
  const kept: Reviver = (_, value, context) => {
    const source = context?.source;
    if (typeof value !== "number" || source === undefined || String(value) === source) return value;
    return exact || WHOLE.test(source) ? new Digits(source) : value;
  };
  return JSON.parse(text, kept as (key: string, value: unknown) => unknown);
}

/** A copy that shares nothing, and is no longer watched. */
export function copied<T>(value: T): T {
  return parsed(JSON.stringify(value), true) as T;
}

/** What somebody typed into a field for a number; the text itself where it is none. */
export function numberOf(text: string): Json {
  const typed = text.trim();
  if (WHOLE.test(typed)) return parsed(typed) as Json;
  return typed !== "" && Number.isFinite(Number(typed)) ? Number(typed) : text;
}
