// JSON that a peer or a model wrote: parsed with a bound on nesting, and never able to reach a prototype.

import { jsonDepthMax } from "./limits.ts";

export type JsonObject = { [key: string]: unknown };

/** The value, or `undefined` where the text is no JSON or nests deeper than `jsonDepthMax`. */
export function parseJson(text: string): { value: unknown } | undefined {
  if (deeperThan(text, jsonDepthMax)) return undefined;
  try {
    return { value: JSON.parse(text) };
  } catch {
    return undefined;
  }
}

/** The object, or `undefined` for anything else, an array and null included. */
export function parseJsonObject(text: string): JsonObject | undefined {
  const parsed = parseJson(text)?.value;
  return isJsonObject(parsed) ? parsed : undefined;
}

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

// Counted on the text: JSON.parse of a deep nest is where a stack would end, so it must not be the one to find out.
function deeperThan(text: string, depthMax: number): boolean {
  let depth = 0;
  let inString = false;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (inString) {
      if (code === 0x5c) at++;
      else if (code === 0x22) inString = false;
    } else if (code === 0x22) inString = true;
    else if (code === 0x7b || code === 0x5b) {
      if (++depth > depthMax) return true;
    } else if (code === 0x7d || code === 0x5d) depth--;
  }
  return false;
}
