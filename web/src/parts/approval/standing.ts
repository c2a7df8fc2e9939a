// How an approval stands, in the words of the page.

import type { ApprovalShown } from "../../api/schema";

export type ApprovalState = ApprovalShown["state"];

export const STANDING: Record<ApprovalState, { label: string; tone: string }> = {
  pending: { label: "Waiting", tone: "accent" },
  approved: { label: "Approved", tone: "good" },
  claimed: { label: "Approved and used", tone: "good" },
  denied: { label: "Denied", tone: "bad" },
  expired: { label: "Expired", tone: "" },
  withdrawn: { label: "Withdrawn", tone: "" },
  void: { label: "Void", tone: "" },
};

/** Who asks: the person where one is known, and the token's name; and at which node of its own. */
export function askerOf(one: ApprovalShown): string {
  const both = one.person && one.caller && one.person !== one.caller;
  const who = both ? `${one.person} (${one.caller})` : (one.person ?? one.caller ?? "nobody by name");
  return one.node ? `${who} at node ${one.node}` : who;
}

/** Who decided: the person where one is known, else the token's name. */
export function deciderOf(one: ApprovalShown): string | null {
  return one.decided ? (one.decided.person ?? one.decided.by) : null;
}
