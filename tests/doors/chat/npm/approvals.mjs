// OpenAI's own client at the chat door while calls need approval: plays one act and prints JSON.
// Arguments: the folder it is installed in, the door's address, a client token, the act, and what
// the act needs. Above: test_npm_approvals.py, whose model decides when it is told to.

import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, url, token, act, given] = process.argv.slice(2);
const { default: OpenAI } = await import(
  pathToFileURL(join(folder, "node_modules", "openai", "index.mjs"))
);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: token, maxRetries: 0, timeout: 30_000 });
const chats = client.chat.completions;

const about = (text, more = {}) => ({
  model: "m",
  messages: [{ role: "user", content: text }],
  ...more,
});
const say = async (text) => (await chats.create(about(text))).choices[0].message.content;

// Streams a chat; whenever a call waits, the model is told what to do about it.
async function streamed(then, more = {}) {
  const stream = await chats.create(about("write", { stream: true, ...more }));
  const notes = [];
  let text = "";
  for await (const chunk of stream) {
    text += chunk.choices[0].delta.content ?? "";
    if (chunk.bascule) notes.push(chunk.bascule);
    if (chunk.bascule?.event === "approval_waiting") await then(stream);
  }
  return { text, notes };
}

const acts = {
  async wait() {
    const granted = await streamed(() => say("approve"));
    const denied = await streamed(() => say("deny"));
    return {
      granted: { text: granted.text, events: granted.notes.map((note) => note.event ?? "end") },
      denied: { text: denied.text, error: denied.notes.at(-1).calls[0].error },
    };
  },

  async leave() {
    await streamed((stream) => stream.controller.abort()).catch(() => {});
    const whole = new AbortController();
    const asking = chats.create(about("write"), { signal: whole.signal }).catch(() => {});
    const first = await say("has it been withdrawn?");
    await say("is it asked?");
    whole.abort();
    await asking;
    return [first, await say("has it been withdrawn?")];
  },

  async park() {
    const { text, notes } = await streamed(() => {});
    const whole = await chats.create(about("write"));
    return {
      text,
      paused: notes.at(-1).paused,
      finish: whole.choices[0].finish_reason,
      same: whole.bascule.paused.approvals,
    };
  },

  async resume() {
    const mcp = { resume: given };
    const whole = await chats.create(about("write", { mcp }));
    const again = await chats.create(about("write", { mcp })).catch((error) => error);
    return {
      content: whole.choices[0].message.content,
      statuses: whole.bascule.calls.map((call) => call.status),
      again: [again.status, again.code],
    };
  },
};

process.stdout.write(JSON.stringify(await acts[act]()));
