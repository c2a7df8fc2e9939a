// What people have at hand for a server: a command line, an address, or a client's configuration.

import type { JsonObject } from "../../api/errors";

/** A configuration on its way from the page of a new server to that of the import. */
export const carried = { text: "" };

const ASSIGNMENT = /^([A-Za-z_]\w*)=(.*)$/s;
const LAUNCHERS = ["npx", "uvx", "bunx", "docker", "podman", "node", "python", "python3", "uv", "deno", "pnpm", "env"];
const SKIPPED = new Set(["run", "exec", "dlx", "tool", "m", "mcp", "x"]);
const LONGEST = 32;

export function isConfiguration(text: string): boolean {
  return /^\s*(\{|\/\/|\/\*|\[\[?\s*[A-Za-z_])/.test(text);
}

/** The record that a command line or an address comes to; null for an empty text. */
export function recordOf(text: string): JsonObject | null {
  const given = text.trim();
  if (!given) return null;
  if (/^https?:\/\//i.test(given)) {
    const transport = /\/sse\/?$/.test(given.split(/[?#]/)[0] ?? "") ? "http_sse_legacy" : "streamable_http";
    return { server_id: idOfUrl(given), transport, http: { url: given } };
  }
  const words = split(given.replace(/^\$\s+/, ""));
  const env: [string, string][] = [];
  for (let found; (found = ASSIGNMENT.exec(words[0] ?? "")); words.shift()) env.push([found[1] ?? "", found[2] ?? ""]);
  const [command = "", ...args] = words;
  const stdio: JsonObject = { command };
  if (args.length) stdio["args"] = args;
  if (env.length) stdio["env"] = Object.fromEntries(env);
  return { server_id: idOfCommand(words), transport: "stdio", stdio };
}

/** The words of a command line, as a shell takes it apart; nothing is expanded. */
export function split(line: string): string[] {
  const words: string[] = [];
  let word: string | null = null;
  let quote = "";
  const text = line.replace(/\\\r?\n/g, " ");
  for (let at = 0; at < text.length; at++) {
    const one = text[at] ?? "";
    if (quote) {
      if (one === quote) quote = "";
      else if (one === "\\" && quote === '"' && /["\\$`]/.test(text[at + 1] ?? "")) word += text[++at] ?? "";
      else word += one;
    } else if (one === "'" || one === '"') {
      quote = one;
      word ??= "";
    } else if (/\s/.test(one)) {
      if (word !== null) words.push(word);
      word = null;
    } else word = (word ?? "") + (one === "\\" ? (text[++at] ?? "") : one);
  }
  if (word !== null) words.push(word);
  return words;
}

function idOfUrl(url: string): string {
  const labels = (URL.canParse(url) ? new URL(url).hostname : "").split(".");
  const telling = labels.filter((one) => !["mcp", "www", "api"].includes(one));
  return slug(telling.length > 1 ? (telling.at(-2) ?? "") : (telling[0] ?? ""));
}

function idOfCommand(words: readonly string[]): string {
  const named = words.filter((one) => !one.startsWith("-") && !ASSIGNMENT.test(one));
  const telling = named.find((one) => !LAUNCHERS.includes(base(one)) && !SKIPPED.has(one)) ?? named[0] ?? "";
  return slug(
    base(telling)
      .replace(/[@:].*$/, "")
      .replace(/\.\w{1,4}$/, "")
      .replace(/^(mcp-server-|server-|mcp-)|(-mcp-server|-mcp|-server)$/g, ""),
  );
}

function base(word: string): string {
  return word.replace(/\/+$/, "").split("/").at(-1) ?? word;
}

function slug(text: string): string {
  const plain = text.toLowerCase().replace(/[^a-z0-9_]+/g, "-").replace(/^[^a-z]+|[-_]+$/g, "");
  return plain.slice(0, LONGEST);
}
