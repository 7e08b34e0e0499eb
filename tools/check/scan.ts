// A scanner for our own TypeScript: words, strings and signs with their lines, comments left out. Enough to find imports,
// calls and what stands inside `${}`; it is no parser and never judges types. Source that TypeScript itself refuses is not its
// business: `deno check` runs beside it.

/** `text` is the value of a string and the fixed part of a template; of a word or a sign, itself. */
export interface Token {
  readonly kind: "word" | "text" | "sign" | "number" | "regex";
  readonly text: string;
  readonly line: number;
  /** Of a word: how many `${}` of templates it stands inside. */
  readonly interpolations: number;
}

export interface SourceFile {
  /** Relative to the root, with `/`. */
  readonly path: string;
  readonly text: string;
  readonly tokens: readonly Token[];
}

/** What a check found: printed as `FILE:LINE: what, wanted`. */
export interface Finding {
  readonly path: string;
  readonly line: number;
  readonly text: string;
}

const wordPattern = /[\p{ID_Start}$_#@][\p{ID_Continue}$\u200c\u200d]*/uy;
const numberPattern = /\d[\d_]*(?:\.\d+)?(?:e[+-]?\d+)?[a-z\d]*/iy;
const regexPattern = /\/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\[\n])+\/[a-z]*/y;
/** After one of these a `/` begins a regular expression, not a division. */
const beforeRegex = new Set([
  "return",
  "typeof",
  "case",
  "of",
  "in",
  "await",
  "yield",
  "throw",
  "else",
  "do",
  "void",
]);

export function scan(text: string): Token[] {
  const tokens: Token[] = [];
  // Depth of braces inside each open `${`; its length is how many interpolations enclose the place.
  const braces: number[] = [];
  let line = 1;
  let at = 0;
  const push = (kind: Token["kind"], value: string, onLine = line) =>
    tokens.push({ kind, text: value, line: onLine, interpolations: braces.length });
  const countLines = (from: number, to: number) => {
    for (let index = from; index < to; index++) if (text[index] === "\n") line++;
  };
  const match = (pattern: RegExp): string | undefined => {
    pattern.lastIndex = at;
    return pattern.exec(text)?.[0];
  };
  // From after a backtick, or from after the `}` that ends an interpolation, to the next `${` or the closing backtick.
  const template = () => {
    const from = at;
    const startLine = line;
    while (at < text.length && text[at] !== "`" && !text.startsWith("${", at)) {
      at += text[at] === "\\" ? 2 : 1;
    }
    countLines(from, at);
    push("text", text.slice(from, at), startLine);
    if (text[at] === "`") {
      push("sign", "`");
      at += 1;
    } else {
      push("sign", "${");
      at += 2;
      braces.push(0);
    }
  };

  while (at < text.length) {
    const character = text[at];
    if (character === "\n") line++;
    if (/\s/.test(character)) {
      at++;
    } else if (text.startsWith("//", at)) {
      const end = text.indexOf("\n", at);
      at = end === -1 ? text.length : end;
    } else if (text.startsWith("/*", at)) {
      const end = text.indexOf("*/", at + 2);
      const past = end === -1 ? text.length : end + 2;
      countLines(at, past);
      at = past;
    } else if (character === '"' || character === "'") {
      const from = at + 1;
      for (at = from; at < text.length && text[at] !== character && text[at] !== "\n"; at++) {
        if (text[at] === "\\") at++;
      }
      push("text", text.slice(from, at));
      at++;
    } else if (character === "`") {
      push("sign", "`");
      at++;
      template();
    } else if (character === "/" && regexMayBegin(tokens.at(-1)) && match(regexPattern) !== undefined) {
      const found = match(regexPattern) ?? "/";
      push("regex", found);
      at += found.length;
    } else if (match(wordPattern) !== undefined) {
      const found = match(wordPattern) ?? character;
      push("word", found);
      at += found.length;
    } else if (match(numberPattern) !== undefined) {
      const found = match(numberPattern) ?? character;
      push("number", found);
      at += found.length;
    } else if (character === "}" && braces.at(-1) === 0) {
      braces.pop();
      push("sign", "}");
      at++;
      template();
    } else {
      if (braces.length > 0 && character === "{") braces[braces.length - 1]++;
      if (braces.length > 0 && character === "}") braces[braces.length - 1]--;
      push("sign", character);
      at++;
    }
  }
  return tokens;
}

function regexMayBegin(before: Token | undefined): boolean {
  if (before === undefined) return true;
  if (before.kind === "word") return beforeRegex.has(before.text);
  return before.kind === "sign" && !")]}`".includes(before.text);
}

/** Index just past the bracket that closes the one at `open`; the end of the tokens where none does. */
export function pastBracket(tokens: readonly Token[], open: number): number {
  let depth = 0;
  for (let at = open; at < tokens.length; at++) {
    if (tokens[at].kind !== "sign") continue;
    if (["(", "[", "{", "${"].includes(tokens[at].text)) depth++;
    if ([")", "]", "}"].includes(tokens[at].text) && --depth === 0) return at + 1;
  }
  return tokens.length;
}

/** Whether the tokens from `at` on are exactly these, words and signs. */
export function follows(tokens: readonly Token[], at: number, ...texts: string[]): boolean {
  return texts.every((text, index) => {
    const token = tokens[at + index];
    return token !== undefined && (token.kind === "word" || token.kind === "sign") && token.text === text;
  });
}
