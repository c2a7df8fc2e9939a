// What an entry of the ledger says, in words for a line.

import type { Json, JsonObject } from "../../api/errors";
import type { AuditEntry } from "../../api/schema";

export type Tone = "good" | "warn" | "bad" | "";

const TITLES: Record<string, string> = {
  session_opened: "Session opened",
  session_refused: "Session refused",
  connection: "Connection",
  egress: "Network of a server",
  tools_listed: "Tools listed",
  guest_ended: "Guest ended",
  call_intent: "Call sent",
  call: "Call ended",
  denials_counted: "Further denials",
  token_made: "Token made",
  token_ended: "Token revoked",
  secret: "Secret",
  policy_loosened: "Policy loosened",
  store_announced: "Store announced",
  node_assigned: "Node assigned",
  node_ledger: "Ledger of a node",
  approval: "Approval",
  ledger_cut: "Ledger cut",
  set_aside: "Journal set aside",
};
const APPROVALS: Record<string, string> = {
  pending: "Approval asked for",
  approved: "Approved",
  denied: "Denied",
  claimed: "Approval used",
  expired: "Approval expired",
  withdrawn: "Approval withdrawn",
  void: "Approval void",
};
const TONES: Record<string, Tone> = {
  ok: "good",
  denied: "warn",
  failed: "bad",
  cancelled: "warn",
  unknown: "bad",
  running: "",
  approved: "good",
  down: "bad",
  degraded: "warn",
};

export function eventOf(entry: AuditEntry): JsonObject {
  return entry.event as JsonObject;
}

export function text(value: Json | undefined): string {
  if (value === null || value === undefined || value === "") return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

export function titleOf(event: JsonObject): string {
  const name = text(event["event"]);
  const state = name === "approval" ? APPROVALS[text(event["state"])] : undefined;
  return state ?? TITLES[name] ?? name;
}

export function isCall(event: JsonObject): boolean {
  return event["event"] === "call" || event["event"] === "call_intent";
}

/** What it is about, first: the tool of a call, the state of an approval, the name of a secret. */
export function subjectOf(event: JsonObject): string {
  const say = (name: string) => text(event[name]);
  switch (event["event"]) {
    case "call":
    case "call_intent":
      return say("tool_name");
    case "approval":
      return `Approval ${say("state")}: ${say("tool_name")}`;
    case "connection":
      return `${say("server_id")} is ${say("state")}`;
    case "egress":
      return `${say("server_id")} to ${say("host")}:${say("port")}: ${say("verdict")}`;
    case "secret":
      return `Secret ${say("name")} ${say("action")}`;
    case "token_made":
      return `Token ${say("name")} made (${say("role")})`;
    case "token_ended":
      return `Token ${say("token_id")} revoked`;
    case "policy_loosened":
      return `Policy loosened: ${say("kind")} ${say("id")}`;
    case "store_announced":
      return `Store ${say("store_id")} replaces ${say("succeeds")}`;
    case "node_assigned":
      return `Node ${say("node")} assigned ${assignment(event)}`;
    case "node_ledger":
      return `Ledger of node ${say("by")}: ${say("action")}`;
    case "session_opened":
      return `Session opened with ${list(event["mcp_effective_servers"]) || "no server"}`;
    case "session_refused":
      return `Session refused: ${say("message") || say("reason")}`;
    case "tools_listed":
      return `${say("tool_count")} tools listed`;
    case "guest_ended":
      return `Guest ${say("path")} ended: ${say("reason")} ${say("exit_code")}`;
    case "denials_counted":
      return `${say("count")} further denials`;
    default:
      return titleOf(event);
  }
}

/** What stands under it: where, by whom, why. */
export function detailOf(event: JsonObject): string {
  const names = isCall(event) || event["event"] === "approval"
    ? ["server_id", "task_id", "person", "caller", "node"]
    : ["by", "task_id", "person", "caller", "last_error", ...(event["event"] === "secret" ? ["server_id"] : [])];
  const said = names.map((name) => text(event[name])).filter(Boolean);
  const why = isCall(event) ? text(event["code"]) : "";
  const own = event["reason"] === "own_tool" ? "the caller's own tool" : "";
  return [...new Set([own, ...said, why].filter(Boolean))].join(" · ");
}

function assignment(event: JsonObject): string {
  const lists = ["tasks", "labels"].filter((name) => event[name] !== null && event[name] !== undefined);
  return lists.map((name) => `${name} ${list(event[name]) || "none"}`).join(", ") || "everything";
}

function list(value: Json | undefined): string {
  return Array.isArray(value) ? value.map(text).join(", ") : "";
}

export function statusOf(entry: AuditEntry): string {
  const event = eventOf(entry);
  return entry.status ?? (event["event"] === "connection" || event["event"] === "approval" ? text(event["state"]) : "");
}

export function toneOf(status: string): Tone {
  return TONES[status] ?? "";
}

export function requestOf(entry: AuditEntry): string {
  return text(eventOf(entry)["request_id"]);
}
