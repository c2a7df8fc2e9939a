// How a node stands, in words.

import type { NodeShown } from "../../api/schema";

export type Standing = { label: string; tone: string; means: string };

const STATES: Record<string, Standing> = {
  ok: { label: "Connected", tone: "good", means: "" },
  degraded: { label: "Degraded", tone: "warn", means: "It does not follow the registry at the moment." },
  silent: { label: "Down", tone: "bad", means: "It has not reported for long." },
  lost: { label: "Lost", tone: "bad", means: "Its stream has ended." },
  unseen: { label: "Unseen", tone: "", means: "It is assigned something and was never here." },
};

export function standingOf(node: NodeShown): Standing {
  return STATES[node.state] ?? { label: node.state, tone: "", means: "" };
}

/** What it is assigned, a line for each list. */
export function assigned(node: NodeShown): string[] {
  const lists: [string, string[] | null | undefined][] = [["tasks", node.tasks], ["labels", node.labels]];
  const said = lists.flatMap(([name, values]) => (values == null ? [] : [`${name}: ${values.join(", ") || "none"}`]));
  return said.length > 0 ? said : ["everything"];
}
