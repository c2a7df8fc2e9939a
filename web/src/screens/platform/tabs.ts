import { href } from "../../state/route.svelte";

export const TABS = [
  { id: "record", label: "Rules", href: href("platform") },
  { id: "backends", label: "Backends", href: href("platform", "backends") },
  { id: "history", label: "History", href: href("platform", "history") },
] as const;
