// OpenAI's own client at the chat door: plays every case and prints what came of each as JSON.
// Arguments: the folder it is installed in, the door's address, and a client token.
// Above: test_npm_client.py, which also plays the model.

import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, url, token] = process.argv.slice(2);
const { default: OpenAI } = await import(
  pathToFileURL(join(folder, "node_modules", "openai", "index.mjs"))
);

const options = { baseURL: `${url}/v1`, apiKey: token, maxRetries: 0, timeout: 10_000 };
const client = new OpenAI(options);
const chats = client.chat.completions;
const USAGE = { stream_options: { include_usage: true } };

const about = (text, more = {}) => ({
  model: "m",
  messages: [{ role: "user", content: text }],
  ...more,
});

const own = (made) => ({
  type: "function",
  function: {
    name: "own",
    description: "A tool of the caller's.",
    parameters: { type: "object", properties: { x: { type: "number" } } },
    parse: JSON.parse,
    function: (given) => {
      made.push(given);
      return "mine";
    },
  },
});

async function refused(asking) {
  try {
    await asking();
    return { kind: "none" };
  } catch (error) {
    return {
      kind: error.constructor.name,
      status: error.status,
      code: error.code,
      param: error.param,
      type: error.type,
      message: error.message,
      retryAfter: error.headers?.get("retry-after"),
    };
  }
}

async function abandoned(text, enough) {
  const stream = await chats.create(about(text, { stream: true }));
  try {
    for await (const chunk of stream) {
      if (enough(chunk)) stream.controller.abort();
    }
  } catch (error) {
    return error.constructor.name;
  }
  // Answered by the other side only when what was abandoned has ended there.
  return (await chats.create(about("has it ended?"))).choices[0].message.content;
}

const cases = {
  async whole() {
    const answer = await chats.create(about("look"));
    const [choice] = answer.choices;
    return {
      content: choice.message.content,
      finish: choice.finish_reason,
      handed: choice.message.tool_calls ?? null,
      tokens: answer.usage.total_tokens,
      statuses: answer.bascule.calls.map((call) => call.status),
      hasRequestId: Boolean(answer._request_id),
    };
  },

  async stream() {
    const stream = await chats.create(about("look", { stream: true, ...USAGE }));
    const chunks = [];
    for await (const chunk of stream) chunks.push(chunk);
    const choices = chunks.flatMap((chunk) => chunk.choices);
    return {
      text: choices.map((choice) => choice.delta.content ?? "").join(""),
      ids: new Set(chunks.map((chunk) => chunk.id)).size,
      finish: choices.at(-1).finish_reason,
      tokens: chunks.at(-1).usage.total_tokens,
      notes: chunks.filter((chunk) => chunk.bascule).map((chunk) => chunk.bascule.event ?? "end"),
    };
  },

  async helper() {
    const said = [];
    const stream = chats.stream(about("look", USAGE)).on("content", (delta) => said.push(delta));
    const final = await stream.finalChatCompletion();
    return {
      said: said.join(""),
      content: final.choices[0].message.content,
      finish: final.choices[0].finish_reason,
      tokens: final.usage.total_tokens,
    };
  },

  async runTools() {
    const made = [];
    const runner = chats.runTools(about("both", { tools: [own(made)] }));
    const content = await runner.finalContent();
    return { content, made, completions: runner.allChatCompletions().length };
  },

  async runToolsStreaming() {
    const made = [];
    const runner = chats.runTools(about("both", { tools: [own(made)], stream: true }));
    const content = await runner.finalContent();
    return { content, made, completions: runner.allChatCompletions().length };
  },

  async narrowed() {
    const mcp = { tool_allowlist: ["fs/read"] };
    return (await chats.create(about("which tools?", { mcp }))).choices[0].message.content;
  },

  async models() {
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    return { ids, owner: (await client.models.retrieve("a/m")).owned_by };
  },

  unauthenticated: () =>
    refused(() => new OpenAI({ ...options, apiKey: "wrong" }).chat.completions.create(about("x"))),
  forbidden: () => refused(() => chats.create(about("x", { mcp: { server_ids: ["git"] } }))),
  badRequest: () => refused(() => chats.create(about("x", { tool_choice: "perhaps" }))),
  unknownModel: () => refused(() => chats.create({ ...about("x"), model: "other" })),
  limited: () => refused(() => chats.create(about("slow down"))),
  limitedStream: () => refused(() => chats.create(about("slow down", { stream: true }))),
  async brokenStream() {
    return refused(async () => {
      const stream = await chats.create(about("break off", { stream: true }));
      for await (const chunk of stream) void chunk;
    });
  },

  abandonedModel: () => abandoned("speak slowly", (chunk) => chunk.choices[0].delta.content),
  abandonedTool: () => abandoned("work long", (chunk) => chunk.bascule?.event === "call_started"),
};

const results = {};
for (const [name, play] of Object.entries(cases)) {
  try {
    results[name] = await play();
  } catch (error) {
    results[name] = { failed: String(error?.stack ?? error) };
  }
}
process.stdout.write(JSON.stringify(results));
