// Why something may not be used, in few words; the API's own word where there are none here.

const WORDS: Record<string, string> = {
  server_disabled: "server is off",
  deny_all: "allows no tool",
  not_in_allowed_tools: "not in its record",
  platform_denied: "denied by the platform",
  not_allowed: "not chosen",
  not_default: "on request only",
  task_disabled: "task is off",
  task_not_allowlisted: "not among its tools",
  task_denied: "left out",
  task_read_only: "read only",
  over_max_tools: "too many tools",
  user_disabled: "person is off",
  user_not_enabled: "not for this person",
  user_not_allowlisted: "not for this person",
  user_denied: "left out for this person",
  user_read_only: "person reads only",
};

export function reasonWords(reason: string | null | undefined): string {
  return WORDS[reason ?? ""] ?? (reason ?? "no").replaceAll("_", " ");
}
