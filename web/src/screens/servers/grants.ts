// What a local server is granted of the paths that its arguments name.

import type { Sandbox } from "../../api/schema";

export type Grant = "" | "read" | "write";

export const GRANTS: ReadonlyArray<{ value: Grant; label: string }> = [
  { value: "", label: "Not granted" },
  { value: "read", label: "It may read" },
  { value: "write", label: "It may read and write" },
];
/** What is offered to a server that does not work inside its sandbox. */
export const LIMITS: Sandbox = { level: "limits" };
/** Where a server may write unless its record says otherwise: its own working directory. */
export const OWN_CWD = ".";

const UNCONFINED = new Set(["none", "limits"]);
// wire/new_servers.py has the same.
const PATH = /^(?:--?[\w-]+=)?((?:\/|~\/)[^\s:]*)$/;
const TOO_WIDE = new Set(["/", "~/", "/dev", "/proc", "/sys", "/etc", "/usr", "/bin", "/home"]);

/** Whether a sandbox keeps anything from a server: otherwise there is nothing to grant, or to try. */
export function confines(sandbox: { level?: unknown } | null | undefined): boolean {
  return !!sandbox && !UNCONFINED.has(String(sandbox.level ?? "best"));
}

/** The absolute paths among the arguments of a server. */
export function namedPlaces(args: readonly unknown[]): string[] {
  const found = args.flatMap((word) => (typeof word === "string" ? (PATH.exec(word)?.[1] ?? []) : []));
  const plain = found.map((place) => place.replace(/\/+$/, "") || "/");
  return [...new Set(plain)].filter((place) => !TOO_WIDE.has(place));
}
