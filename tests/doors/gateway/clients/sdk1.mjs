// The official TypeScript SDK v1, over streamable HTTP, or over stdio through mcp-remote.

import { headers, listChanged, packaged, play, task } from "./steps.mjs";

const { Client } = packaged("@modelcontextprotocol/sdk/client/index.js");

function direct() {
  const { StreamableHTTPClientTransport } = packaged(
    "@modelcontextprotocol/sdk/client/streamableHttp.js",
  );
  return new StreamableHTTPClientTransport(new URL(task.url), { requestInit: { headers } });
}

function throughMcpRemote() {
  const { StdioClientTransport } = packaged("@modelcontextprotocol/sdk/client/stdio.js");
  return new StdioClientTransport({
    command: process.execPath,
    args: [
      packaged.resolve("mcp-remote/dist/proxy.js"),
      task.url,
      ...["--header", "Authorization:${AUTH_HEADER}"],
      ...(task.era === "legacy" ? [] : ["--protocol", task.era]),
    ],
    env: { ...process.env, AUTH_HEADER: headers.Authorization },
    stderr: "inherit",
  });
}

const transport = task.programs.remote ? throughMcpRemote() : direct();
const client = new Client({ name: "sdk1", version: "1" }, { listChanged });
let version = null;
transport.setProtocolVersion = ((set) => (agreed) => {
  version = agreed;
  set?.call(transport, agreed);
})(transport.setProtocolVersion);
await play(client, transport, () => version, (more) => [undefined, more]);
