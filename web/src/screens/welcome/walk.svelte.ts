// The four steps, and what came of those that ran: kept while the page is open.

import { Chat } from "../../chat/chat.svelte";
import { REHEARSAL } from "../../chat/models";
import { welcome } from "../../state/welcome.svelte";

export const TASK = "demo";
export const SERVER = "notes";
export const STEPS = ["tools", "call", "approve", "life"] as const;
export type StepId = (typeof STEPS)[number];

function chat(): Chat {
  const made = new Chat();
  made.task = TASK;
  made.model = REHEARSAL;
  return made;
}

class Walk {
  readonly call = chat();
  readonly approve = chat();
  /** The one step that is open. */
  open = $state<StepId | null>(STEPS.find((step) => !welcome.ran(step)) ?? null);

  /** The call on which somebody decided, if one did since the page was opened. */
  get decided(): string | null {
    const last = this.approve.last;
    return (last?.state === "done" && last.calls.at(-1)?.report?.request_id) || null;
  }

  toggle(step: StepId): void {
    this.open = this.open === step ? null : step;
  }

  next(after: StepId): void {
    this.open = STEPS[STEPS.indexOf(after) + 1] ?? null;
  }
}

export const walk = new Walk();
