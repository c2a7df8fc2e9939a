// Who a secret is for: those it is bound to and those whose records name it, as one list.

import type { BindingShown, SecretShown } from "../../api/schema";

export type UserKind = BindingShown["kind"];
export type User = { kind: UserKind; id: string; state: BindingShown["state"] | "unbound"; used: boolean };

export function usersOf(secret: SecretShown): User[] {
  const named = new Set(secret.used_by.map(nameOf));
  const bound = secret.bound.map(({ kind, id, state }) => ({ kind, id, state, used: named.has(nameOf({ kind, id })) }));
  const known = new Set(bound.map(nameOf));
  const others = secret.used_by.filter((one) => !known.has(nameOf(one)));
  return [...bound, ...others.map(({ kind, id }) => ({ kind, id, state: "unbound" as const, used: true }))];
}

export function nameOf({ kind, id }: { kind: string; id: string }): string {
  return `${kind} ${id}`;
}

/** The body by which the API names one. */
export function bodyOf({ kind, id }: { kind: UserKind; id: string }): { server: string } | { backend: string } {
  return kind === "server" ? { server: id } : { backend: id };
}
