// A model's own text taken apart while it streams: what is thinking, what is said, and which `<tool_call>{json}</tool_call>` blocks it holds.
// With raw history this process reads the calls itself, since sending the text back as it was written is what keeps a prefix exact (facts 2b).
// With structured history it catches the call that a server left in plain text (F20).

import { isJsonObject, parseJsonObject } from "../../core/json.ts";

export interface ReplyParts {
  onContent(text: string): void;
  onThinking(text: string): void;
}

export interface ReadReply {
  readonly content: string;
  readonly thinking: string;
  /** Nothing was taken out: the text held no thinking and no call. */
  readonly untouched: boolean;
  /** Undefined when a block is unfinished or holds no call. */
  readonly calls: { name: string; arguments: string }[] | undefined;
}

type Place = "said" | "thinking" | "call";

const opens: readonly [tag: string, place: Place][] = [["<think>", "thinking"], ["<tool_call>", "call"]];
const closes = { thinking: "</think>", call: "</tool_call>" } as const;

/** Feeds on pieces of text as they stream; tags may be cut anywhere. */
export class RawReply {
  #parts: ReplyParts;
  #place: Place = "said";
  #pending = "";
  #content = "";
  #thinking = "";
  #untouched = true;
  #blocks: string[] = [];
  #block = "";

  constructor(parts: ReplyParts) {
    this.#parts = parts;
  }

  push(text: string): void {
    this.#pending += text;
    while (this.#step());
  }

  /** The whole reply. */
  end(): ReadReply {
    this.#take(this.#pending);
    this.#pending = "";
    const broken = this.#place === "call";
    const calls = this.#blocks.map(readCall);
    return {
      content: this.#content.trim(),
      thinking: this.#thinking.trim(),
      untouched: this.#untouched,
      calls: broken || calls.some((call) => call === undefined)
        ? undefined
        : calls.filter((call) => call !== undefined),
    };
  }

  // Moves to the next tag if one is there; keeps back what may be the beginning of one.
  #step(): boolean {
    const tags = this.#place === "said" ? opens.map(([tag]) => tag) : [closes[this.#place]];
    const found = tags.map((tag) => ({ tag, at: this.#pending.indexOf(tag) })).filter(({ at }) => at !== -1)
      .sort((a, b) => a.at - b.at)[0];
    if (found !== undefined) {
      this.#take(this.#pending.slice(0, found.at));
      this.#pending = this.#pending.slice(found.at + found.tag.length);
      this.#pass(found.tag);
      return true;
    }
    const keep = Math.max(...tags.map((tag) => beginningAtEnd(this.#pending, tag)));
    this.#take(this.#pending.slice(0, this.#pending.length - keep));
    this.#pending = this.#pending.slice(this.#pending.length - keep);
    return false;
  }

  #pass(tag: string): void {
    this.#untouched = false;
    if (this.#place === "call") {
      // A closing tag inside a string of the arguments closes nothing: a block ends where its JSON does.
      if (parseJsonObject(this.#block.trim()) === undefined) return void (this.#block += tag);
      this.#blocks.push(this.#block);
      this.#block = "";
    }
    this.#place = opens.find(([open]) => open === tag)?.[1] ?? "said";
  }

  #take(text: string): void {
    if (text === "") return;
    if (this.#place === "call") this.#block += text;
    else if (this.#place === "thinking") {
      this.#thinking += text;
      this.#parts.onThinking(text);
    } else {
      // White space around calls and thinking is the template's, not the model's answer.
      const said = this.#content === "" ? text.trimStart() : text;
      if (said === "") return;
      this.#content += said;
      this.#parts.onContent(said);
    }
  }
}

function readCall(block: string): { name: string; arguments: string } | undefined {
  const call = parseJsonObject(block.trim());
  if (call === undefined || typeof call.name !== "string" || call.name === "") return undefined;
  const args = call.arguments ?? {};
  return isJsonObject(args) ? { name: call.name, arguments: JSON.stringify(args) } : undefined;
}

// How many characters at the end of `text` could be the beginning of `tag`.
function beginningAtEnd(text: string, tag: string): number {
  for (let length = Math.min(tag.length - 1, text.length); length > 0; length--) {
    if (text.endsWith(tag.slice(0, length))) return length;
  }
  return 0;
}
