// What bench/page_screens.py asks of a page.
globalThis.bench = {
  key: null,

  /** Have `key` promise how long the next key takes until its result is painted. */
  awaitKey() {
    this.key = new Promise((done) => {
      let began = 0;
      addEventListener("keydown", (event) => (began = event.timeStamp), { capture: true, once: true });
      addEventListener("input", () => {
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = () => done(performance.now() - began);
        requestAnimationFrame(() => port2.postMessage(0)); // heard once that frame is painted
      }, { capture: true, once: true });
    });
  },

  /** Scroll the list a step at each frame, to and fro; how long each frame took. */
  scroll(frames, step) {
    const list = document.querySelector(".rows");
    const times = [];
    let last = 0;
    return new Promise((done) => {
      const frame = (now) => {
        if (last) times.push(now - last);
        last = now;
        if (times.length === frames) return done(times);
        const most = list.scrollHeight - list.clientHeight;
        if (list.scrollTop + step < 0 || list.scrollTop + step > most) step = -step;
        list.scrollTop += step;
        requestAnimationFrame(frame);
      };
      requestAnimationFrame(frame);
    });
  },

  /** Answer the live stream from here: everything else is still the server's. */
  standIn() {
    const fetched = globalThis.fetch;
    globalThis.fetch = (address, ...more) => {
      if (!String(address.url ?? address).endsWith("/admin/api/live")) return fetched(address, ...more);
      const { readable, writable } = new TransformStream();
      this.writer = writable.getWriter();
      void this.tell("hello", { revision: 1, now: new Date().toISOString() });
      return Promise.resolve(new Response(readable, { headers: { "Content-Type": "text/event-stream" } }));
    };
  },

  tell(event, data) {
    return this.writer.write(new TextEncoder().encode(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`));
  },

  /** Tell what a second brings: calls that ended and its figures. */
  async second(number, calls) {
    const at = new Date().toISOString();
    for (let call = 0; call < calls; call++) {
      await this.tell("call", {
        request_id: `request-${number}-${call}`, at, server_id: "floor", tool_name: `tool_${number}_${call}`,
        task_id: "bench", person: null, status: call ? "ok" : "error", code: call ? null : "tool_error",
        duration_ms: 3.5 + call,
      });
    }
    await this.tell("figures", { at, calls, errors: 1, denials: 0, p50_ms: 4 + (number % 7), p95_ms: 12, running: 1 });
  },
};
