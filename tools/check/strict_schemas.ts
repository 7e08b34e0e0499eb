// Every schema refuses a key it does not know: zod's ways to let one through are not used anywhere in our code.

import { type Finding, follows, type SourceFile } from "./scan.ts";

/** After `z.`: objects that drop or keep unknown keys. */
const looseMakers = ["object", "looseObject", "interface", "looseRecord"];
/** After a schema: what opens it again. */
const looseners = ["passthrough", "loose", "strip", "catchall", "nonstrict"];

export function checkStrictSchemas(files: readonly SourceFile[]): Finding[] {
  return files.flatMap(({ path, tokens }) =>
    tokens.flatMap((token, at) => {
      const found = (text: string) => [{ path, line: token.line, text }];
      for (const maker of looseMakers) {
        if (token.kind === "word" && follows(tokens, at, "z", ".", maker, "(")) {
          return found(`z.${maker}(), which lets unknown keys through, wanted z.strictObject()`);
        }
      }
      for (const loosener of looseners) {
        if (follows(tokens, at, ".", loosener, "(")) {
          return found(`.${loosener}(), which lets unknown keys through, wanted none`);
        }
      }
      return [];
    })
  );
}
