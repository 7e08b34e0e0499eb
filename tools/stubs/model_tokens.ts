// The practice model's tokens: one UTF-8 byte is one token, and each chat control mark is one token more.
// Owns: the numbers of the tokens and the way between text and tokens. A mark counts as the control token
// wherever it stands, inside plain user text too, because the real server does the same. Never knows of
// messages or templates.

export const messageStart = "<|im_start|>";
export const messageEnd = "<|im_end|>";

export type Tokens = Uint16Array<ArrayBuffer>;

const controlTokens: readonly [mark: string, token: number][] = [[messageStart, 258], [messageEnd, 259]];
export const endOfMessageToken = 259;

export function tokenize(text: string): Tokens {
  const bytes = new TextEncoder().encode(text);
  const tokens = new Uint16Array(bytes.byteLength);
  if (!text.includes("<|im_")) {
    tokens.set(bytes);
    return tokens;
  }
  let count = 0;
  for (const part of text.split(/(<\|im_start\|>|<\|im_end\|>)/)) {
    const control = controlTokens.find(([mark]) => mark === part);
    if (control !== undefined) {
      tokens[count++] = control[1];
      continue;
    }
    const partBytes = new TextEncoder().encode(part);
    tokens.set(partBytes, count);
    count += partBytes.byteLength;
  }
  return tokens.slice(0, count);
}

/** Text of tokens; bytes that form no character become U+FFFD. */
export function detokenize(tokens: Iterable<number>): string {
  let text = "";
  let bytes: number[] = [];
  const flush = () => {
    text += new TextDecoder().decode(new Uint8Array(bytes));
    bytes = [];
  };
  for (const token of tokens) {
    const control = controlTokens.find(([, number]) => number === token);
    if (control === undefined) bytes.push(token);
    else {
      flush();
      text += control[0];
    }
  }
  flush();
  return text;
}

export function commonPrefixLength(left: Tokens, right: Tokens): number {
  const most = Math.min(left.length, right.length);
  let length = 0;
  while (length < most && left[length] === right[length]) length++;
  return length;
}

export function joinTokens(parts: readonly Tokens[]): Tokens {
  const whole = new Uint16Array(parts.reduce((sum, part) => sum + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.length;
  }
  return whole;
}
