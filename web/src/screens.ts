// The screens: where each is, what it is called, and who sees it. A screen is loaded when opened.

import type { Component } from "svelte";
import type { IconName } from "./parts/Icon.svelte";

export type Screen = {
  id: string;
  label: string;
  icon: IconName;
  group: "" | "Access" | "Activity" | "Platform";
  /** What a role must be allowed for the screen to make sense. */
  needs: string;
  load: () => Promise<{ default: Component }>;
};

export const SCREENS: readonly Screen[] = [
  { id: "welcome", label: "Welcome", icon: "home", group: "", needs: "registry:read", load: () => import("./screens/welcome/Welcome.svelte") },
  { id: "overview", label: "Overview", icon: "history", group: "", needs: "metrics:read", load: () => import("./screens/overview/Overview.svelte") },
  { id: "servers", label: "Servers", icon: "servers", group: "", needs: "registry:read", load: () => import("./screens/servers/Servers.svelte") },
  { id: "tools", label: "Tools", icon: "tools", group: "", needs: "registry:read", load: () => import("./screens/tools/Tools.svelte") },
  { id: "tasks", label: "Tasks", icon: "tasks", group: "Access", needs: "registry:read", load: () => import("./screens/tasks/Tasks.svelte") },
  { id: "profiles", label: "Profiles", icon: "profiles", group: "Access", needs: "registry:read", load: () => import("./screens/profiles/Profiles.svelte") },
  { id: "people", label: "People", icon: "people", group: "Access", needs: "registry:read", load: () => import("./screens/people/People.svelte") },
  { id: "approvals", label: "Approvals", icon: "approvals", group: "Activity", needs: "approvals:read", load: () => import("./screens/approvals/Approvals.svelte") },
  { id: "playground", label: "Playground", icon: "play", group: "Activity", needs: "tokens:write", load: () => import("./screens/playground/Playground.svelte") },
  { id: "audit", label: "Audit", icon: "audit", group: "Activity", needs: "audit:read", load: () => import("./screens/audit/Audit.svelte") },
  { id: "agents", label: "Agents", icon: "agents", group: "Platform", needs: "registry:read", load: () => import("./screens/agents/Agents.svelte") },
  { id: "secrets", label: "Secrets", icon: "secrets", group: "Platform", needs: "secrets:write", load: () => import("./screens/secrets/Secrets.svelte") },
  { id: "tokens", label: "Tokens", icon: "tokens", group: "Platform", needs: "tokens:write", load: () => import("./screens/tokens/Tokens.svelte") },
  { id: "nodes", label: "Nodes", icon: "nodes", group: "Platform", needs: "nodes:read", load: () => import("./screens/nodes/Nodes.svelte") },
  { id: "platform", label: "Platform", icon: "platform", group: "Platform", needs: "registry:read", load: () => import("./screens/platform/Platform.svelte") },
];
