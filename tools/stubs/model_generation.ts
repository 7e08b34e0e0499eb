// Turns a scripted reply into what a model would have written: raw text piece by piece, each with its tokens
// and with the delta that a client is shown for it.
// Owns: the parsing of thinking and calls as the server does it, the cut at a token limit, the token that ends
// a message. Never paces, never writes; the same reply always gives the same pieces.

import { callFrame, dumpJson, thinkFrame } from "./model_template.ts";
import { endOfMessageToken, tokenize, type Tokens } from "./model_tokens.ts";
import type { Reply } from "./model_script.ts";

const chunkBytesDefault = 24;

export interface Delta {
  content?: string;
  reasoning_content?: string;
  tool_calls?: {
    index: number;
    id?: string;
    type?: "function";
    function: { name?: string; arguments: string };
  }[];
}

export interface Piece {
  raw: string;
  tokens: Tokens;
  /** Absent where the text is only the frame of thinking or of a call. */
  delta?: Delta;
}

export interface Generation {
  pieces: Piece[];
  finish: "stop" | "tool_calls" | "length";
}

export interface GenerationOptions {
  /** False: calls stay in `content` as the model wrote them (no tools, or `tool_choice: "none"`). */
  parseCalls: boolean;
  /** False: thinking stays in `content` as the model wrote it (`reasoning_format: "none"`). */
  parseThinking: boolean;
  tokensMax: number;
  nextCallId: () => string;
}

export function generate(reply: Reply, options: GenerationOptions): Generation {
  const calls = reply.toolCalls ?? [];
  const chunkBytes = reply.chunkBytes ?? chunkBytesDefault;
  const unfinished = reply.finish === "length";
  const pieces: Piece[] = [];
  const add = (raw: string, delta?: Delta) => {
    if (raw !== "") pieces.push({ raw, tokens: tokenize(raw), delta });
  };
  const addText = (text: string, toDelta: (part: string) => Delta | undefined) => {
    for (const part of cutText(text, chunkBytes)) add(part, toDelta(part));
  };
  const asContent = (part: string): Delta => ({ content: part });

  if (reply.thinking) {
    const closed = !unfinished || reply.content !== undefined || calls.length > 0;
    const frameDelta = options.parseThinking ? () => undefined : asContent;
    add(thinkFrame.open, frameDelta(thinkFrame.open));
    addText(reply.thinking, options.parseThinking ? (part) => ({ reasoning_content: part }) : asContent);
    if (closed) add(thinkFrame.close, frameDelta(thinkFrame.close));
  }
  addText(reply.content ?? "", asContent);
  for (const [index, call] of calls.entries()) {
    const frame = callFrame(call.name);
    const open = (index === 0 && !reply.content ? "" : "\n") + frame.open;
    const close = unfinished && index === calls.length - 1 ? "" : frame.close;
    const text = typeof call.arguments === "string" ? call.arguments : dumpJson(call.arguments);
    if (!options.parseCalls) {
      addText(open + text + close, asContent);
      continue;
    }
    // The server shows a call only when its arguments begin: the first delta carries the id, the name and `{`.
    const [first = ""] = text;
    const head = { index, id: options.nextCallId(), type: "function" as const };
    add(open + first, { tool_calls: [{ ...head, function: { name: call.name, arguments: first } }] });
    addText(
      text.slice(first.length),
      (part) => ({ tool_calls: [{ index, function: { arguments: part } }] }),
    );
    add(close);
  }
  return end(pieces, reply, options);
}

/** Text in parts of at most `bytesMax` UTF-8 bytes (one character, where it alone is longer). */
export function cutText(text: string, bytesMax: number): string[] {
  const parts: string[] = [];
  let part = "";
  let partBytes = 0;
  for (const character of text) {
    const code = character.codePointAt(0) as number;
    const bytes = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    if (part !== "" && partBytes + bytes > bytesMax) {
      parts.push(part);
      part = "";
      partBytes = 0;
    }
    part += character;
    partBytes += bytes;
  }
  return part === "" ? parts : [...parts, part];
}

function end(pieces: Piece[], reply: Reply, options: GenerationOptions): Generation {
  const endMark: Piece = { raw: "", tokens: new Uint16Array([endOfMessageToken]) };
  const whole = reply.finish === "length" ? pieces : [...pieces, endMark];
  const kept: Piece[] = [];
  let left = options.tokensMax;
  for (const piece of whole) {
    if (piece.tokens.length > left) {
      if (left > 0) kept.push(cutPiece(piece, left));
      return { pieces: kept, finish: "length" };
    }
    kept.push(piece);
    left -= piece.tokens.length;
  }
  // A model samples at least one token, even when it says nothing.
  if (kept.length === 0) kept.push(endMark);
  const called = options.parseCalls && (reply.toolCalls ?? []).length > 0;
  return { pieces: kept, finish: reply.finish ?? (called ? "tool_calls" : "stop") };
}

/** The first `count` tokens of a piece; half a character is not shown, and half a frame shows nothing. */
function cutPiece(piece: Piece, count: number): Piece {
  const [raw = ""] = cutText(piece.raw, count);
  const fitting = tokenize(raw).length <= count ? raw : "";
  const { delta } = piece;
  const shown = (text: string | undefined) => text === piece.raw && fitting !== "";
  const tokens = piece.tokens.slice(0, count);
  if (shown(delta?.content)) return { raw: fitting, tokens, delta: { content: fitting } };
  if (shown(delta?.reasoning_content)) return { raw: fitting, tokens, delta: { reasoning_content: fitting } };
  const call = delta?.tool_calls?.[0];
  if (call !== undefined && call.id === undefined && shown(call.function.arguments)) {
    return {
      raw: fitting,
      tokens,
      delta: { tool_calls: [{ index: call.index, function: { arguments: fitting } }] },
    };
  }
  return { raw: fitting, tokens };
}
