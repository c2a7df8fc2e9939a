// How far somebody is with the welcome, kept in the origin's storage: which steps ran, and whether
// it is to open the page no more.

const KEY = "bascule.welcome";
const DISMISSED = "done";

class Welcome {
  #words = $state((localStorage.getItem(KEY) ?? "").split(" ").filter(Boolean));

  get dismissed(): boolean {
    return this.#words.includes(DISMISSED);
  }

  ran(step: string): boolean {
    return this.#words.includes(step);
  }

  mark(step: string): void {
    if (this.ran(step)) return;
    this.#words = [...this.#words, step];
    localStorage.setItem(KEY, this.#words.join(" "));
  }

  dismiss(): void {
    this.mark(DISMISSED);
  }
}

export const welcome = new Welcome();
