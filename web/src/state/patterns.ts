// Patterns over tool names, as records have them: `*` any run, `?` one character, the whole name,
// and perhaps the server before a slash. The same rules as bascule/model/pattern.py.

const LONGEST = 256;
const PLAIN = /^[\x21-\x7e]+$/;
const OTHERWISE = /[*?\\]/;

/** Whether a pattern covers a tool of a server. */
export function covers(pattern: string, server: string, tool: string): boolean {
  const at = pattern.indexOf("/");
  if (at < 0) return matches([...pattern], [...tool]);
  return pattern.slice(0, at) === server && matches([...pattern.slice(at + 1)], [...tool]);
}

/** The first pattern that covers a tool; its own name before those that cover others too. */
export function covering(patterns: readonly string[], server: string, tool: string): string | undefined {
  const own = exactly(server, tool);
  if (own !== null && patterns.includes(own)) return own;
  return patterns.find((one) => covers(one, server, tool));
}

/** The pattern for this tool alone; null where there is none that can be written. */
export function exactly(server: string, tool: string): string | null {
  if (!PLAIN.test(tool) || OTHERWISE.test(tool)) return null;
  const text = tool.includes("/") ? `${server}/${tool}` : tool;
  return text.length > LONGEST ? null : text;
}

/** Without a way back but to the last star: linear for every piece between stars. */
function matches(glob: readonly string[], name: readonly string[]): boolean {
  let [at, in_, star, from] = [0, 0, -1, 0];
  while (in_ < name.length) {
    if (at < glob.length && glob[at] !== "*" && (glob[at] === "?" || glob[at] === name[in_])) {
      at++;
      in_++;
    } else if (glob[at] === "*") {
      star = at++;
      from = in_;
    } else if (star >= 0) {
      at = star + 1;
      in_ = ++from;
    } else return false;
  }
  while (glob[at] === "*") at++;
  return at === glob.length;
}
