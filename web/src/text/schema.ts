// What a form can make of a JSON schema; the rest is typed as JSON.

import type { Json, JsonObject } from "../api/errors";
import { safe } from "./safe";

export type Shape = "text" | "number" | "boolean" | "choice" | "words" | "object" | "json";
export type Property = {
  name: string;
  shape: Shape;
  label: string;
  hint: string;
  required: boolean;
  options: { value: string; label: string }[];
  schema: JsonObject;
};
const MOST = 60;
const MOST_OPTIONS = 200;
const DEEPEST = 3;

export function isObject(one: Json | undefined): one is JsonObject {
  return typeof one === "object" && one !== null && !Array.isArray(one);
}

/** The properties of an object's schema; null where it has more than a form can show. */
export function propertiesOf(given: Json | undefined, depth = 0): Property[] | null {
  if (!isObject(given) || depth > DEEPEST) return null;
  if (["oneOf", "anyOf", "allOf", "$ref", "if"].some((word) => word in given)) return null;
  const inside = given["properties"];
  if (!isObject(inside)) return inside === undefined ? [] : null;
  const names = Object.keys(inside);
  if (names.length > MOST) return null;
  const needed = Array.isArray(given["required"]) ? given["required"] : [];
  return names.map((name) => propertyOf(name, inside[name], needed.includes(name), depth));
}

function propertyOf(name: string, given: Json | undefined, required: boolean, depth: number): Property {
  const schema = isObject(given) ? given : {};
  const words = Array.isArray(schema["enum"]) && schema["enum"].every((word) => typeof word === "string") ? (schema["enum"] as string[]) : [];
  const options = words.length <= MOST_OPTIONS ? words.map((word) => ({ value: word, label: safe(word, { oneLine: true }) })) : [];
  const said = typeof schema["description"] === "string" ? safe(schema["description"].slice(0, 300), { oneLine: true }) : "";
  const shape = shapeOf(schema, options.length > 0, depth);
  const hint = shape === "json" ? `${said} Typed as JSON.`.trim() : said;
  return { name, hint, required, options, schema, shape, label: safe(name.slice(0, 200), { oneLine: true }) };
}

function shapeOf(one: JsonObject, choice: boolean, depth: number): Shape {
  if (choice) return "choice";
  const type = typeOf(one);
  if (type === "string") return "text";
  if (type === "integer" || type === "number") return "number";
  if (type === "boolean") return "boolean";
  if (type === "object") return propertiesOf(one, depth + 1)?.length ? "object" : "json";
  const items = one["items"];
  return type === "array" && isObject(items) && items["type"] === "string" && !items["enum"] ? "words" : "json";
}

/** Its one type; that it may be null as well needs no field. */
function typeOf(one: JsonObject): Json | undefined {
  const type = one["type"];
  if (!Array.isArray(type)) return type;
  const others = type.filter((word) => word !== "null");
  return others.length === 1 ? others[0] : undefined;
}

/** The validator's lines by the field that they are about: a missing one is that field's. */
export function argumentProblems(lines: readonly string[]): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const line of lines) {
    const [, path = "", words = line] = /^arguments\.?((?:[^\s:]|:(?! ))*): (.*)$/s.exec(line) ?? [];
    const [, missing] = /^"(.+)" is a required property$/s.exec(words) ?? [];
    const place = missing === undefined ? path : [path, missing].filter(Boolean).join(".");
    found.set(place, [...(found.get(place) ?? []), missing === undefined ? words : "is required"]);
  }
  return found;
}
