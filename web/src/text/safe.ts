// Text from servers, for people: whatever could deceive is shown as an escape. The same rules as
// `render_safe` in bascule/policy/characters.py; a test compares the two.

const BLANKS = "\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u3164\\uffa0";
const SUSPECTS =
  "\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f" +
  "\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069" +
  `\\u00ad\\u180e\\u200b-\\u200d\\u2060-\\u2065\\u206a-\\u206f\\ufeff\\ufff9-\\ufffb${BLANKS}` +
  "\\u{110bd}\\u{110cd}\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}" +
  "\\u{e0000}-\\u{e0fff}\\ufe00-\\ufe0f\\ud800-\\udfff";
const ALSO =
  "\\r\\u2028\\u2029\\ue000-\\uf8ff\\u{f0000}-\\u{ffffd}\\u{100000}-\\u{10fffd}";
const SHOWN = new RegExp(`[${SUSPECTS}${ALSO}]`, "gu");
const SHOWN_ON_ONE_LINE = new RegExp(`[\\n\\t${SUSPECTS}${ALSO}]`, "gu");
const SUSPECT = new RegExp(`^[${SUSPECTS}]$`, "u");
const SCRIPT = /^[\u0590-\u109f\u1780-\u17b3\u17b6-\u18af]$/u;
const PICTURE = /^[\u00a9\u00ae\u203c-\u3299\u{1f000}-\u{1faff}]$/u;
const PLAIN = /^[\x20-\x7e]*$/;
const SHORT: Record<string, string> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** Text as it may be shown; `oneLine` shows line ends and tabs too. */
export function safe(text: string, { oneLine = false } = {}): string {
  if (PLAIN.test(text)) return text;
  return text.replace(oneLine ? SHOWN_ON_ONE_LINE : SHOWN, (one, at: number) =>
    inItsPlace(text, one, at) ? one : escape(one),
  );
}

/** One character as its escape: \x1b, \u202e, \U000e0041. */
export function escape(one: string): string {
  const short = SHORT[one];
  if (short) return short;
  const code = one.codePointAt(0) ?? 0;
  if (code < 0x100) return `\\x${hex(code, 2)}`;
  return code < 0x10000 ? `\\u${hex(code, 4)}` : `\\U${hex(code, 8)}`;
}

function hex(code: number, digits: number): string {
  return code.toString(16).padStart(digits, "0");
}

/** Whether this joiner or variation selector is part of ordinary writing. */
function inItsPlace(text: string, one: string, at: number): boolean {
  if (one === "\u200c" || one === "\u200d") return joins(text, at);
  if (one < "\ufe00" || one > "\ufe0f") return false;
  const before = previous(text, at);
  return before !== "" && !/\s/u.test(before) && !SUSPECT.test(before);
}

function joins(text: string, at: number): boolean {
  const before = previous(text, at);
  const after = following(text, at + 1);
  if (SCRIPT.test(before)) return SCRIPT.test(after) && !SUSPECT.test(after);
  const picture = before === "\ufe0f" ? previous(text, at - 1) : before;
  const both = PICTURE.test(picture) && PICTURE.test(after);
  return both && !SUSPECT.test(picture) && !SUSPECT.test(after);
}

function previous(text: string, at: number): string {
  if (at <= 0) return "";
  const code = text.codePointAt(at - 2) ?? 0;
  return at >= 2 && code > 0xffff ? String.fromCodePoint(code) : (text[at - 1] ?? "");
}

function following(text: string, at: number): string {
  const code = text.codePointAt(at);
  return code === undefined ? "" : String.fromCodePoint(code);
}

/** A long text cut for the eye, and whether it was; what is cut is still there to be copied. */
export function cut(text: string, limit = 20_000): { text: string; left: number } {
  if (text.length <= limit) return { text, left: 0 };
  return { text: text.slice(0, limit), left: text.length - limit };
}
