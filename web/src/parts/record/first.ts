// The first field that the API complained of: brought into view, and where one types next.

import { tick } from "svelte";

export async function toFirstProblem(): Promise<void> {
  await tick();
  const field = document.querySelector<HTMLElement>('main [aria-invalid="true"]');
  const folded = field?.closest("details");
  if (folded) folded.open = true;
  field?.focus();
}
