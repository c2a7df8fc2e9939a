// The time, once a second, for whatever counts it on the screen.

import { createSubscriber } from "svelte/reactivity";

class Clock {
  #now = Date.now();
  #subscribe = createSubscriber((update) => {
    const timer = setInterval(() => {
      this.#now = Date.now();
      update();
    }, 1000);
    return () => clearInterval(timer);
  });

  get now(): number {
    this.#subscribe();
    return Math.max(this.#now, Date.now() - 1000);
  }
}

export const clock = new Clock();
