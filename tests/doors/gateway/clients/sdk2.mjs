// The official TypeScript SDK v2, over streamable HTTP, in either generation.

import { headers, listChanged, packaged, play, task } from "./steps.mjs";

const { Client, StreamableHTTPClientTransport } = packaged("@modelcontextprotocol/client");

const transport = new StreamableHTTPClientTransport(new URL(task.url), {
  requestInit: { headers },
});
const client = new Client(
  { name: "sdk2", version: "1" },
  { listChanged, versionNegotiation: { mode: task.era } },
);
const version = () => client.getNegotiatedProtocolVersion();
await play(client, transport, version, (more) => [more]);
