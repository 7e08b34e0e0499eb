// No secret in any text we print, as far as it can be seen from the source: a value named like a secret never stands inside a
// template, an error, or a console call. A secret's *name* is spelt secretName and may. It reads names, not data flow: what the
// names hide is for the test that searches all output for a marked key (F27).

import { type Finding, pastBracket, type SourceFile, type Token } from "./scan.ts";

/** Names that hold a secret's value. */
const secretWords = /^(?:secret|secretValue|secretText|bearer|bearerValue|authorization|apiKey|password)$/i;
/** What may be read of such a value without showing it. */
const harmlessMembers = ["length", "name", "path", "file", "key", "fault"];
/** The one text that is made of a secret: the header's value. */
const headerName = "authorization";

export function checkSecretTexts(files: readonly SourceFile[]): Finding[] {
  return files.filter((file) => !file.path.startsWith("tests/")).flatMap((file) => {
    const shown = shownRanges(file.tokens);
    return file.tokens.flatMap((token, at) => {
      if (!isSecretValue(file.tokens, at)) return [];
      if (token.interpolations > 0 && !inHeader(file.tokens, at)) {
        return [{ path: file.path, line: token.line, text: `${token.text} inside a template, ${wanted}` }];
      }
      const range = shown.find(({ from, to }) => from < at && at < to);
      return range === undefined
        ? []
        : [{ path: file.path, line: token.line, text: `${token.text} inside ${range.what}, ${wanted}` }];
    });
  });
}

const wanted = "wanted no secret in a text (its name is spelt secretName)";

function isSecretValue(tokens: readonly Token[], at: number): boolean {
  const token = tokens[at];
  if (token.kind !== "word" || !secretWords.test(token.text)) return false;
  // A key of an object literal or a type, and a method's name, are names.
  const next = tokens[at + 1]?.text;
  if (next === ":" || next === "(") return false;
  return !(next === "." && harmlessMembers.includes(tokens[at + 2]?.text ?? ""));
}

// `authorization: \`Bearer ${options.bearer}\``: one name or a chain of members, and nothing longer.
function inHeader(tokens: readonly Token[], at: number): boolean {
  let open = at - 1;
  while (tokens[open]?.text === "." && tokens[open - 1]?.kind === "word") open -= 2;
  return tokens[at].interpolations === 1 && tokens[open]?.text === "${" &&
    tokens[open - 1]?.text === "Bearer " &&
    tokens[open - 2]?.text === "`" && tokens[at + 1]?.text === "}" && tokens[at + 2]?.text === "" &&
    [":", "=", ","].includes(tokens[open - 3]?.text ?? "") &&
    tokens[open - 4]?.text.toLowerCase() === headerName;
}

function shownRanges(tokens: readonly Token[]): { from: number; to: number; what: string }[] {
  return tokens.flatMap((token, at) => {
    if (token.kind !== "word") return [];
    const call = token.text === "console" && tokens[at + 1]?.text === "." && tokens[at + 3]?.text === "("
      ? { what: `console.${tokens[at + 2].text}()`, open: at + 3 }
      : token.text.endsWith("Error") && tokens[at - 1]?.text === "new" && tokens[at + 1]?.text === "("
      ? { what: `new ${token.text}()`, open: at + 1 }
      : undefined;
    return call === undefined
      ? []
      : [{ from: call.open, to: pastBracket(tokens, call.open), what: call.what }];
  });
}
