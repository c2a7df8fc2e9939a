// Tools one by one, where a task or a profile is edited: left out by a veto, let in by lifting it.

import type { EffectiveServer, EffectiveSet, EffectiveTool, LayerVerdict } from "../../api/schema";
import type { Draft } from "../../state/draft.svelte";

export type ToolActs = {
  /** Whether a click can change it: nobody but the draft says no. */
  may(tool: EffectiveTool): boolean;
  leaveOut(server: EffectiveServer, tool: EffectiveTool): void;
  letIn(server: EffectiveServer, tool: EffectiveTool): void;
};

const PLAIN = /^[\w.:-]+$/;
const OF_DRAFT = ["task_denied", "task_not_allowlisted", "task_read_only"];

/** The acts on a draft whose selection stands `at` a path, in the light of what it comes to. */
export function actsOn(draft: Draft, at: string, layer: LayerVerdict["layer"], set: () => EffectiveSet | undefined): ToolActs {
  const path = (field: string) => (at ? `${at}.${field}` : field);
  const list = (field: string): string[] | undefined => {
    const found = draft.at(path(field));
    return Array.isArray(found) ? found.filter((one) => typeof one === "string") : undefined;
  };
  const put = (field: string, words: string[]) => draft.set(path(field), words.length ? words : undefined);

  return {
    may: (tool) =>
      PLAIN.test(tool.tool_name) &&
      tool.layers.every((one) => one.allowed !== false || (one.layer === layer && OF_DRAFT.includes(one.reason ?? ""))),
    leaveOut(server, tool) {
      const name = nameOf(server, tool);
      const allowed = list("tool_allowlist");
      if (allowed?.includes(name)) draft.set(path("tool_allowlist"), allowed.filter((one) => one !== name));
      else put("tool_denylist", [...(list("tool_denylist") ?? []), name]);
    },
    letIn(server, tool) {
      const name = nameOf(server, tool);
      const veto = list("tool_denylist") ?? [];
      if (veto.includes(name) || veto.includes(tool.tool_name)) put("tool_denylist", veto.filter((one) => one !== name && one !== tool.tool_name));
      const readOnly = draft.at(path("read_only")) === true && tool.effect === "write";
      // One tool that writes, and no other: what is in now stays in, by name.
      if (readOnly) draft.set(path("read_only"), undefined);
      const allowed = readOnly ? namesIn(set()) : list("tool_allowlist");
      if (allowed && !allowed.includes(name)) draft.set(path("tool_allowlist"), [...allowed, name]);
    },
  };
}

function nameOf(server: EffectiveServer, tool: EffectiveTool): string {
  return `${server.server_id}/${tool.tool_name}`;
}

function namesIn(set: EffectiveSet | undefined): string[] {
  return (set?.servers ?? []).flatMap((server) => server.tools.filter((tool) => tool.allowed).map((tool) => nameOf(server, tool)));
}
