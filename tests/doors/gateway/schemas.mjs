// Prints the protocol's JSON schemas, by version, that a bundle of the conformance suite holds.
import { readFileSync } from "node:fs";

const bundle = readFileSync(process.argv[2], "utf8");
const NAME = "([\\w$]+)";
const table = bundle.match(
  new RegExp(`\\{"2025-03-26":${NAME},"2025-06-18":${NAME},"2025-11-25":${NAME},\\[${NAME}\\]:${NAME}\\}`),
);
if (table === null) throw new Error("the suite has no table of schemas where it used to be");
const [, march, june, november, , newest] = table;

/** The source of the object that a name stands for: up to the brace that closes it. */
function literal(name) {
  const start = bundle.indexOf(`${name}={$schema:`) + name.length + 1;
  let depth = 0;
  for (let at = start; at < bundle.length; at++) {
    const character = bundle[at];
    if ("`\"'".includes(character)) {
      while (bundle[++at] !== character) if (bundle[at] === "\\") at++;
    } else if (character === "{") depth++;
    else if (character === "}" && --depth === 0) return bundle.slice(start, at + 1);
  }
  throw new Error(`the schema ${name} has no end`);
}

const names = { "2025-03-26": march, "2025-06-18": june, "2025-11-25": november, "2026-07-28": newest };
const read = ([version, name]) => [version, new Function(`return ${literal(name)}`)()];
process.stdout.write(JSON.stringify(Object.fromEntries(Object.entries(names).map(read))));
