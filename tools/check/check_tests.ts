// Which requirement numbers no test names. A number counts where a test's name carries it: the first argument of Deno.test or its
// `name`, or a string that opens with numbers, as the rows of table-driven tests do. It says nothing of what a test proves.

import { follows, type SourceFile } from "./scan.ts";
import { faultCaseIds, requirementIds } from "./requirements.ts";

export interface Coverage {
  readonly missingRequirements: readonly string[];
  readonly missingFaultCases: readonly string[];
}

const anywhere = /\b[PSCKTDBF]\d{1,2}\b/g;
/** `S1`, `S1 S2 …`, `P2, C8: …` at the start of a text. */
const leading = /^(?:[PSCKTDBF]\d{1,2}[\s,:;/]+)+/;

export function testCoverage(files: readonly SourceFile[]): Coverage {
  const named = new Set(files.filter((file) => file.path.startsWith("tests/")).flatMap(namedIds));
  return {
    missingRequirements: requirementIds.filter((id) => !named.has(id)),
    missingFaultCases: faultCaseIds.filter((id) => !named.has(id)),
  };
}

function namedIds({ tokens }: SourceFile): string[] {
  return tokens.flatMap((token, at) => {
    if (token.kind !== "text") return [];
    const opening = tokens[at - 1]?.text === "`" ? at - 1 : at;
    const isName = follows(tokens, opening - 4, "Deno", ".", "test", "(") ||
      follows(tokens, opening - 2, "name", ":");
    return (isName ? token.text : leading.exec(token.text)?.[0] ?? "").match(anywhere) ?? [];
  });
}
