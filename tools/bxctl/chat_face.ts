// The two ways in which a conversation meets a person: a terminal on which lines are edited and redrawn, and plain lines in and out for
// pipes and for terminals that cannot be redrawn. Neither knows what is said.

import type { TurnEvent, TurnOutcome } from "../../core/protocol/loop.ts";
import type { ApprovalFace } from "./chat_approvals.ts";
import { LineEditor } from "./chat_editor.ts";
import { inputParser, type Key } from "./chat_keys.ts";
import { type Line, LiveScreen } from "./chat_screen.ts";
import { type OwnLog, TurnScreen } from "./chat_turn.ts";
import type { Context } from "./command.ts";
import type { Screen } from "./terminal.ts";
import { TurnView } from "./turn_view.ts";

/** One turn as it is shown. */
export interface ShownTurn {
  readonly waits: boolean;
  readonly thoughts: string;
  show(event: TurnEvent): Promise<TurnOutcome | undefined>;
  close(): void;
}

export interface ChatFace extends ApprovalFace {
  /** The next message; `undefined` at the end of input. */
  read(prompt: string): Promise<string | undefined>;
  beginTurn(log: OwnLog, options: { fullThinking: boolean }): ShownTurn;
  /** A line for the person at the prompt, which then stands again below it. */
  remark(text: string): void;
  /** A line of trouble while a turn is shown. */
  complain(text: string): void;
  close(): void;
}

export interface FaceOptions {
  readonly context: Context;
  /** Newest first. */
  readonly history: readonly string[];
  readonly words: readonly string[];
  readonly onInterrupt: () => void;
}

export function chatFace(options: FaceOptions): ChatFace {
  const { screen } = options.context.terminal;
  return screen === undefined ? new PlainFace(options) : new ScreenFace(options, screen);
}

/** Keys that are pressed while no question is asked, kept for the next message. */
const typedAheadMax = 10_000;
/** A question is asked when the keyboard was quiet for so long: a key meant for something else must never answer it. */
const quietMs = 400;

class ScreenFace implements ChatFace {
  readonly #options: FaceOptions;
  readonly #live: LiveScreen;
  readonly #editor: LineEditor;
  readonly #restore: () => void;
  #typedAhead: (() => void)[] = [];
  #question: { readonly text: string; readonly keys: string; answer(key: string): void } | undefined;
  #onKey: () => void = () => {};

  constructor(options: FaceOptions, private readonly screen: Screen) {
    this.#options = options;
    const { context, history, words } = options;
    const write = (text: string) => context.terminal.write(text);
    this.#live = new LiveScreen({ screen, write, paint: context.paint });
    this.#editor = new LineEditor({ write, columns: () => screen.size().columns, history, words });
    const push = inputParser({
      onKey: (text, key) => this.#key(text, key),
      onPaste: (text) => this.#later(() => this.#editor.paste(text)),
    });
    this.#restore = screen.open({
      onInput: push,
      onResize: () => {
        this.#live.resize();
        this.#editor.resize();
      },
      onEnd: () => this.#editor.close(),
    });
  }

  async read(prompt: string): Promise<string | undefined> {
    const message = this.#editor.read(prompt);
    while (this.#editor.reading && this.#typedAhead.length > 0) this.#typedAhead.shift()?.();
    return await message;
  }

  beginTurn(log: OwnLog, { fullThinking }: { fullThinking: boolean }): ShownTurn {
    return new TurnScreen({
      context: this.#options.context,
      live: this.#live,
      log,
      fullThinking,
      columns: () => this.screen.size().columns,
      question: (): Line[] => this.#question === undefined ? [] : [[["yellow", `${this.#question.text} ›`]]],
    });
  }

  print(text: string): void {
    this.#live.print(text);
  }

  async ask(text: string, keys: string, signal: AbortSignal): Promise<string> {
    try {
      await this.#quiet(signal);
      return await new Promise((resolve, reject) => {
        signal.throwIfAborted();
        signal.addEventListener("abort", () => reject(signal.reason), { once: true });
        this.#question = { text, keys, answer: resolve };
        this.#live.refresh();
      });
    } finally {
      this.#question = undefined;
      this.#live.refresh();
    }
  }

  remark(text: string): void {
    this.#options.context.terminal.write(`\n${text}\n`);
    this.#editor.redraw();
  }

  complain(text: string): void {
    this.#live.print(this.#options.context.paint("red", text));
  }

  close(): void {
    this.#live.settle();
    this.#editor.close();
    this.#restore();
  }

  #key(text: string | undefined, key: Key): void {
    if (key.ctrl && key.name === "c") {
      if (this.#editor.reading && this.#editor.clear()) return;
      return this.#options.onInterrupt();
    }
    this.#onKey();
    const pressed = text?.toLowerCase();
    const question = this.#question;
    if (
      question !== undefined && pressed !== undefined && pressed.length === 1 &&
      question.keys.includes(pressed)
    ) {
      return question.answer(pressed);
    }
    this.#later(() => this.#editor.key(text, key));
  }

  #later(act: () => void): void {
    if (this.#editor.reading) act();
    else if (this.#typedAhead.length < typedAheadMax) this.#typedAhead.push(act);
  }

  #quiet(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason);
      const end = (settle: () => void) => {
        clearTimeout(timer);
        this.#onKey = () => {};
        signal.removeEventListener("abort", onAbort);
        settle();
      };
      const onAbort = () => end(() => reject(signal.reason));
      const start = () => setTimeout(() => end(resolve), quietMs);
      let timer = start();
      this.#onKey = () => {
        clearTimeout(timer);
        timer = start();
      };
      signal.addEventListener("abort", onAbort, { once: true });
    });
  }
}

class PlainFace implements ChatFace {
  readonly #options: FaceOptions;
  readonly #lines: AsyncIterator<string>;
  /** A line that is waited for already. */
  #next: Promise<IteratorResult<string>> | undefined;
  #prompt = "";
  #view: TurnView | undefined;

  constructor(options: FaceOptions) {
    this.#options = options;
    this.#lines = options.context.terminal.lines()[Symbol.asyncIterator]();
  }

  async read(prompt: string): Promise<string | undefined> {
    const { interactive } = this.#options.context.terminal;
    this.#prompt = prompt;
    if (interactive) this.#options.context.terminal.write(prompt);
    let message = "";
    for (;;) {
      const line = await this.#line();
      if (line === undefined) return message === "" ? undefined : message;
      if (!interactive || !line.endsWith("\\")) return message + line;
      message += `${line.slice(0, -1)}\n`;
    }
  }

  beginTurn(): ShownTurn {
    const view = this.#view = new TurnView(this.#options.context);
    let waits = false;
    let thoughts = "";
    return {
      get waits() {
        return waits;
      },
      get thoughts() {
        return thoughts;
      },
      show(event) {
        if (event.event === "call") waits = true;
        if (event.event === "result") waits = false;
        if (event.event === "thinking") thoughts += event.data.text;
        return Promise.resolve(view.show(event));
      },
      close() {},
    };
  }

  print(text: string): void {
    this.#view?.freshLine();
    this.#options.context.print(text);
  }

  async ask(question: string, keys: string, signal: AbortSignal): Promise<string> {
    for (;;) {
      this.print(`${question}, then Enter`);
      const line = await this.#line(signal);
      if (line === undefined) throw new Error("the input ended");
      const answer = line.trim().toLowerCase();
      if (answer.length === 1 && keys.includes(answer)) return answer;
    }
  }

  remark(text: string): void {
    this.#options.context.terminal.writeError(`\n${text}\n`);
    this.#options.context.terminal.write(this.#prompt);
  }

  complain(text: string): void {
    this.#options.context.warn(text);
  }

  close(): void {}

  // A question that nobody waits for any more leaves its line to the next reader.
  async #line(signal?: AbortSignal): Promise<string | undefined> {
    this.#next ??= this.#lines.next();
    const next = this.#next;
    const result = signal === undefined ? await next : await untilAborted(next, signal);
    this.#next = undefined;
    return result.done ? undefined : result.value;
  }
}

function untilAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const onAbort = () => reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}
