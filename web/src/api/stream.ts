// Server-sent events read with `fetch`: the browser's own EventSource sends no bearer.

import { fetched, type Method } from "./client";
import { Nonsense } from "./errors";
import { parsed } from "./json";

export type ServerEvent = { event: string; data: unknown };
const MAX_LINE = 8 * 1024 * 1024;

/** Yield the events of an answer until it ends or the signal says so. */
export async function* events(
  method: Method,
  address: string,
  request: { body?: unknown; signal?: AbortSignal; headers?: Record<string, string>; as?: string } = {},
): AsyncGenerator<ServerEvent> {
  const headers = { ...request.headers, Accept: "text/event-stream" };
  const response = await fetched(method, address, { ...request, headers });
  if (!response.body) throw new Nonsense(response.status);
  yield* blocks(response.body, response.status);
}

async function* blocks(body: ReadableStream<Uint8Array>, status: number): AsyncGenerator<ServerEvent> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      if (rest.length > MAX_LINE) throw new Nonsense(status);
      const whole = rest.split(/\r?\n\r?\n/);
      rest = whole.pop() ?? "";
      for (const block of whole) {
        const event = eventOf(block);
        if (event) yield event;
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

function eventOf(block: string): ServerEvent | null {
  let event = "message";
  const data: string[] = [];
  for (const line of block.split(/\r?\n/)) {
    if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
  }
  if (data.length === 0) return null;
  const text = data.join("\n");
  try {
    return { event, data: parsed(text) };
  } catch {
    return { event, data: text };
  }
}
