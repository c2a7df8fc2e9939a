// Bascule's host calls for guests in AssemblyScript: those that the samples need.

@external("bascule", "log")
declare function host_log(level: i32, text: usize, length: usize): i32;
@external("bascule", "mcp_open")
declare function host_mcp_open(server: usize, length: usize): i32;
@external("bascule", "mcp_call_tool")
declare function host_mcp_call_tool(
  fd: i32, tool: usize, toolLength: usize, args: usize, argsLength: usize, out: usize, outLength: usize,
): i32;
@external("bascule", "mcp_close")
declare function host_mcp_close(fd: i32): i32;
@external("wasi_snapshot_preview1", "fd_write")
declare function fd_write(fd: i32, vectors: usize, count: i32, written: usize): i32;
@external("wasi_snapshot_preview1", "proc_exit")
declare function proc_exit(code: i32): void;

const ENOSPC: i32 = 28;

export function log(level: i32, text: string): void {
  const bytes = String.UTF8.encode(text);
  host_log(level, changetype<usize>(bytes), bytes.byteLength);
}

export function print(text: string): void {
  const bytes = String.UTF8.encode(text);
  const vector = new StaticArray<u32>(3); // where, how long, how much was written
  vector[0] = <u32>changetype<usize>(bytes);
  vector[1] = bytes.byteLength;
  const at = changetype<usize>(vector);
  fd_write(1, at, 1, at + 8);
}

// End the guest with an error if a call returned one.
export function check(what: string, code: i32): i32 {
  if (code < 0) {
    log(4, what + ": error " + (-code).toString());
    proc_exit(1);
  }
  return code;
}

export function open(server: string): i32 {
  const name = String.UTF8.encode(server);
  return check("mcp_open", host_mcp_open(changetype<usize>(name), name.byteLength));
}

// Call a tool with a JSON object; what it answers is JSON, errors too.
export function call(fd: i32, tool: string, json: string): string {
  const name = String.UTF8.encode(tool), args = String.UTF8.encode(json);
  const length = new StaticArray<u32>(1);
  let out = new ArrayBuffer(4096), code: i32 = -ENOSPC;
  for (let tries = 0; tries < 4 && code == -ENOSPC; tries++) {
    if (length[0] > <u32>out.byteLength) out = new ArrayBuffer(length[0]);
    length[0] = out.byteLength;
    code = host_mcp_call_tool(
      fd, changetype<usize>(name), name.byteLength, changetype<usize>(args), args.byteLength,
      changetype<usize>(out), changetype<usize>(length),
    );
  }
  check("mcp_call_tool", code);
  return String.UTF8.decodeUnsafe(changetype<usize>(out), length[0]);
}

export function close(fd: i32): void {
  check("mcp_close", host_mcp_close(fd));
}
