// What a local server is granted: of the paths that its arguments name, and of what it missed.

import type { Missed, Sandbox } from "../../api/schema";

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

/** What a sandbox grants of a place. */
export function grantOf(sandbox: Sandbox | null, place: string): Grant {
  if (writable(sandbox).includes(place)) return "write";
  return sandbox?.read?.includes(place) ? "read" : "";
}

/** A sandbox that grants so much of a place, and of all others what it granted before. */
export function withGrant(sandbox: Sandbox | null, place: string, to: Grant): Sandbox {
  const { read = [], write: _, ...others } = sandbox ?? {};
  const reads = [...read.filter((one) => one !== place), ...(to === "read" ? [place] : [])];
  const writes = [...writable(sandbox).filter((one) => one !== place), ...(to === "write" ? [place] : [])];
  return {
    ...others,
    ...(reads.length ? { read: reads } : {}),
    ...(writes.length === 1 && writes[0] === OWN_CWD ? {} : { write: writes }),
  };
}

/** A sandbox that grants what a server missed besides; null where nothing of it can be granted. */
export function withMissed(sandbox: Sandbox | null, missed: readonly Missed[]): Sandbox | null {
  let found: Sandbox = { ...sandbox };
  const everywhere = missed.some((one) => one.field === "network");
  for (const one of missed) {
    if (one.field === "read" || one.field === "write") found = withGrant(found, one.value, one.field);
    else if (one.field === "hosts" && !everywhere) found = { ...found, network: "egress", hosts: [...new Set([...(found.hosts ?? []), one.value])] };
  }
  if (everywhere) {
    const { hosts: _, ...others } = found;
    found = { ...others, network: "full" };
  }
  return missed.some((one) => one.field) ? found : null;
}

function writable(sandbox: Sandbox | null): string[] {
  return sandbox?.write ?? [OWN_CWD];
}
