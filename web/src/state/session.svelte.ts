// Who is signed in. The token is kept in the origin's storage, which browsers keep apart by port,
// and sent as a bearer: there is no cookie to ride on. It ends with the process.

import { post, read, useDoor } from "../api/client";
import { Nonsense, Refused, wordsOf } from "../api/errors";
import type { Identity } from "../api/schema";

const KEY = "bascule.token";
/** Whatever stands there is taken for a code: a garbled one must not stay in the address either. */
const CODE = /^#code=(.{1,200})/s;
/** What can be sent in a header. */
const TOKEN = /^[\x21-\x7e]+$/;
/** How often the API is told that somebody is at the page. */
const PRESENT_MS = 300_000;

export type Permission = string;
type Waiting = { message: string; done: (code: string) => void; failed: (error: Error) => void };

class Session {
  /** Undefined until it is known, null where nobody is signed in. */
  identity = $state.raw<Identity | null | undefined>(undefined);
  /** The code of the link by which the page was opened, until it is used. */
  code = $state<string | null>(null);
  /** Whether the token ended while the page was open. */
  ended = $state(false);
  reachable = $state(true);
  /** Why the page does not open yet. */
  trouble = $state("");
  confirming = $state.raw<Waiting | null>(null);
  #token = usable(localStorage.getItem(KEY));
  #asking: Promise<string> | null = null;
  /** The code that confirmed last: this page may show it for some minutes, as the API decides. */
  #confirmed: string | null = null;
  #signedIn: Array<() => void> = [];
  /** Where the page was before a link was opened in it. */
  #place = "";
  #leavings = new Set<() => Promise<unknown>>();
  #present = Date.now();

  constructor() {
    this.#takeCode();
    addEventListener("hashchange", () => this.#takeCode());
    addEventListener("storage", (event) => {
      if (event.key === KEY) void this.#replaced(event.newValue);
    });
    for (const act of ["pointerdown", "keydown"]) addEventListener(act, () => this.#isHere());
    useDoor({
      token: () => this.#token,
      renew: (stale) => this.#renew(stale),
      confirm: (message, refused) => this.#confirm(message, refused),
      reached: (yes) => (this.reachable = yes),
    });
  }

  may(permission: Permission): boolean {
    return this.identity?.permissions.includes(permission) ?? false;
  }

  /** An address where tools and models are called: here, or at a node elsewhere. */
  atNode(path: string): string {
    return `${this.identity?.node_url ?? ""}${path}`;
  }

  /** Whether the page is a person's own: a client's, which sees its task and nothing else. */
  get own(): boolean {
    return this.identity?.role === "client";
  }

  async begin(): Promise<void> {
    if (this.#token === null) this.identity = null;
    else await this.#recognise();
  }

  /** Say whose session a code would give, using nothing up. */
  async look(code: string) {
    return await post("/admin/api/login", { body: { code, look: true }, as: null });
  }

  async signIn(code: string): Promise<void> {
    const data = await post("/admin/api/login", { body: { code }, as: null });
    if (!("token" in data)) throw new Refused(401, "invalid_code", "the code gave no session");
    localStorage.setItem(KEY, data.token);
    await this.#replaced(data.token);
  }

  /** Have something done when the person signs out. */
  beforeLeaving(leave: () => Promise<unknown>): void {
    this.#leavings.add(leave);
  }

  async signOut(): Promise<void> {
    const leaving = Promise.allSettled([...this.#leavings].map((leave) => leave()))
      .then(() => post("/admin/api/logout"))
      .catch(() => {});
    await Promise.race([leaving, new Promise((done) => setTimeout(done, 3000))]);
    localStorage.removeItem(KEY);
    await this.#replaced(null);
  }

  async #replaced(given: string | null): Promise<void> {
    const token = (this.#token = usable(given));
    this.code = this.#confirmed = null;
    if (token === null) {
      this.identity = null;
      this.ended = false;
      return;
    }
    await this.#recognise();
    this.ended = false;
    for (const go of this.#signedIn.splice(0)) go();
  }

  async #recognise(): Promise<void> {
    try {
      const found = await read("/api/v1/identity");
      if (!Array.isArray(found.permissions)) throw new Nonsense(200);
      this.identity = found;
    } catch (error) {
      this.trouble = wordsOf(error);
      if (this.identity === undefined && error instanceof Refused) this.identity = null;
      else if (this.identity === undefined) setTimeout(() => void this.#recognise(), 2000);
    }
  }

  /** To click and to type is to use the session, though nothing is asked of the API for long. */
  #isHere(): void {
    if (!this.identity || this.ended || Date.now() - this.#present < PRESENT_MS) return;
    this.#present = Date.now();
    void read("/api/v1/identity").catch(() => {});
  }

  /** Take the code out of the address at once: it must not stay in the history. */
  #takeCode(): void {
    const found = CODE.exec(location.hash);
    if (!found?.[1]) {
      this.#place = location.hash;
      return;
    }
    this.code = found[1];
    history.replaceState(null, "", location.pathname + this.#place);
  }

  #renew(stale: string | null): Promise<void> {
    if (stale !== this.#token) return Promise.resolve();
    if (this.identity === undefined || this.identity === null) {
      localStorage.removeItem(KEY);
      this.#token = null;
      this.identity = null;
      return Promise.reject(new Refused(401, "unauthenticated", "nobody is signed in"));
    }
    this.ended = true;
    return new Promise((done) => this.#signedIn.push(done));
  }

  /** Ask once for all that wait: a second question would leave the first without an answer. */
  async #confirm(message: string, refused: string | undefined): Promise<string> {
    if (this.#confirmed !== null && this.#confirmed !== refused) return this.#confirmed;
    this.#asking ??= new Promise<string>((done, failed) => {
      this.confirming = { message, done, failed };
    }).finally(() => {
      this.confirming = this.#asking = null;
    });
    return (this.#confirmed = await this.#asking);
  }
}

function usable(token: string | null): string | null {
  return token !== null && TOKEN.test(token) ? token : null;
}

export const session = new Session();
