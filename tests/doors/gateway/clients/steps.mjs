// What every client written for Node is asked to do, and how it says what came of it: as steps.py.
// A driver reads its task as one line of JSON and writes its report as one.

import { readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const heard = async () => (await lines.next()).value;
const say = (report) => process.stdout.write(`${JSON.stringify(report)}\n`);

export const task = JSON.parse(await heard());
export const headers = { Authorization: `Bearer ${task.token}` };
export const packaged = createRequire(join(task.programs.packages, "package.json"));

// What tells of a changed list: the option `listChanged` of both SDKs.
let ring;
const rung = new Promise((resolve) => (ring = resolve));
export const listChanged = {
  tools: { onChanged: (error, tools) => ring(error ? `${error}` : names({ tools })) },
};

const names = ({ tools }) => tools.map((tool) => tool.name);

async function call(client, name, args = {}, options = []) {
  const result = await client.callTool({ name, arguments: args }, ...options);
  const text = result.content.map((block) => block.text).join("");
  if (result.isError) throw new Error(text);
  return text;
}

async function failure(client, name) {
  try {
    return `answered: ${await call(client, name)}`;
  } catch (error) {
    return error.message;
  }
}

// `options` are what callTool takes after its parameters: the two SDKs differ there.
const STEPS = (client, options) => ({
  list: async () => names(await client.listTools()),
  call: () => call(client, `${task.prefix}echo`, { text: "grüß Gott ☃" }),
  error: () => failure(client, `${task.prefix}fail`),
  unknown: () => failure(client, `${task.prefix}nobody`),
  async progress() {
    const seen = [];
    const onprogress = ({ progress, total }) => {
      seen.push([progress, total ?? null]);
      if (progress === total) writeFile(task.gate, "");
    };
    const said = await call(client, `${task.prefix}steps`, {}, options({ onprogress }));
    return [...seen, said];
  },
  async cancel() {
    if (task.programs.remote && task.era === "auto") return null;
    const giving = new AbortController();
    const waiting = call(client, `${task.prefix}wait`, {}, options({ signal: giving.signal }));
    const ended = waiting.then(
      (said) => `answered: ${said}`,
      () => readFile(task.cancelled, "ascii"),
    );
    await readFile(task.arrived);
    giving.abort("enough");
    return ended;
  },
  async change() {
    await call(client, `${task.prefix}grow`);
    return rung;
  },
  async pause() {
    say({ paused: true });
    await heard();
    return call(client, `${task.prefix}echo`, { text: "again" });
  },
});

// Without any steps: say why it could not so much as list.
export async function play(client, transport, version, options) {
  const report = {};
  try {
    await client.connect(transport);
    const steps = STEPS(client, options);
    for (const step of task.steps) report[step] = await steps[step]();
    if (!task.steps.length) report.refused = `listed: ${names(await client.listTools())}`;
    else report.version = version();
    await client.close();
  } catch (error) {
    if (task.steps.length) throw error;
    report.refused = `${error.name}: ${error.message}`;
  }
  say(report);
  process.exit(0);
}
