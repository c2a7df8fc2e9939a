// Fetches again when the registry moved: what a screen shows is never older than it says.

import { untrack } from "svelte";
import { live } from "./live.svelte";
import { Loading } from "./loading.svelte";

/** As `loading`, and again at every revision. */
export function following<T>(fetch: (signal: AbortSignal) => Promise<T>, again?: () => unknown): Loading<T> {
  const made = new Loading(fetch);
  $effect(() => {
    void live.revision;
    again?.();
    untrack(() => void made.load());
  });
  $effect(() => () => made.cancel());
  return made;
}
