// Short messages at the foot of the page: what was done, with a way back where there is one.

export type Notice = {
  id: number;
  text: string;
  kind: "good" | "bad";
  action?: { label: string; run: () => void };
};

class Notices {
  list = $state<Notice[]>([]);
  #next = 1;

  say(text: string, options: { kind?: "good" | "bad"; action?: Notice["action"] } = {}): void {
    const notice: Notice = { id: this.#next++, text, kind: options.kind ?? "good" };
    if (options.action) notice.action = options.action;
    this.list = [...this.list.slice(-2), notice];
    if (notice.kind === "good") setTimeout(() => this.drop(notice.id), 6000);
  }

  drop(id: number): void {
    this.list = this.list.filter((one) => one.id !== id);
  }
}

export const notices = new Notices();
