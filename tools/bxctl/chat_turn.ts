// One turn on a terminal that can be redrawn: thinking that folds to one line, each call a line that resolves in place with its children
// below it, the answer as it comes. It reads events and records, and never decides about the turn.

import { delay, systemClock } from "../../core/clock.ts";
import type { SessionId } from "../../core/ids.ts";
import type { TurnEvent, TurnOutcome } from "../../core/protocol/loop.ts";
import { type ChatRecord, newRecords, type Position, type RequestFacts } from "./chat_log.ts";
import { beginCall, callLines, type CallProgress, ChildProgress } from "./chat_progress.ts";
import { lastLines, type Line, type LiveScreen } from "./chat_screen.ts";
import type { Context } from "./command.ts";
import { count, duration, visible, visibleStream } from "./render.ts";

/** Thinking that streams, before it folds. */
const thinkingLinesShown = 4;
/** What the log tells behind an event is there within moments; a log that is late keeps nobody waiting. */
const logWaitMs = 2_000;

/** The session's own log while the chat is open: which child a call spawned, and what each model request of a turn took. */
export class OwnLog {
  readonly #closing = new AbortController();
  readonly #listeners = new Set<(record: ChatRecord) => void>();
  #running: Promise<void> | undefined;
  #facts: RequestFacts[] = [];

  constructor(
    private readonly context: Context,
    private readonly session: SessionId,
    private readonly position: Position,
  ) {}

  /** Follows, unless it does already. */
  follow(): void {
    if (this.#running !== undefined) return;
    this.#running = this.#read();
    // Whoever waits for it, `close` at the latest, hears of a failure.
    this.#running.catch(() => {});
  }

  /** Of the turn that began last, each request; once they are on record, or it is clear that they will not be heard of. */
  factsAtEnd(): () => Promise<readonly RequestFacts[]> {
    this.#facts = [];
    const ended = Promise.withResolvers<void>();
    const stop = this.listen((record) => record.kind === "end" ? ended.resolve() : undefined);
    return async () => {
      await this.soon(ended.promise);
      stop();
      return this.#facts;
    };
  }

  /** Waits for what this log will bring, while it is followed, and not for long. */
  async soon(wanted: Promise<unknown>): Promise<void> {
    const waiting = new AbortController();
    const late = delay(systemClock, logWaitMs, waiting.signal).catch(() => {});
    await Promise.race([wanted, late, this.#running]);
    waiting.abort();
  }

  listen(listener: (record: ChatRecord) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#running;
  }

  async #read(): Promise<void> {
    const options = { position: this.position, signal: this.#closing.signal };
    try {
      for await (const record of newRecords(this.context, this.session, options)) {
        if (record.kind === "user") this.#facts = [];
        if (record.kind === "assistant") this.#facts.push(record.facts);
        this.#listeners.forEach((listener) => listener(record));
      }
    } finally {
      this.#running = undefined;
    }
  }
}

export interface TurnScreenOptions {
  readonly context: Context;
  readonly live: LiveScreen;
  readonly log: OwnLog;
  /** Thinking stays as it streamed. */
  readonly fullThinking: boolean;
  readonly columns: () => number;
  /** What stands below everything live. */
  readonly question: () => readonly Line[];
}

export class TurnScreen {
  readonly #options: TurnScreenOptions;
  readonly #ending = new AbortController();
  readonly #unlisten: () => void;
  #stream = visibleStream();
  #thinking: { text: string; readonly startedMs: number } | undefined;
  #thoughts: string[] = [];
  #call: CallProgress | undefined;
  #children: Promise<void>[] = [];
  /** Calls whose result is on record. */
  readonly #recorded = new Map<number, PromiseWithResolvers<void>>();

  constructor(options: TurnScreenOptions) {
    this.#options = options;
    this.#unlisten = options.log.listen((record) => this.#note(record));
  }

  /** A call is open: the turn may wait for the owner. */
  get waits(): boolean {
    return this.#call !== undefined;
  }

  /** What the model thought in this turn. */
  get thoughts(): string {
    return this.#thoughts.join("\n");
  }

  /** Returns the outcome once it is there. */
  async show(event: TurnEvent): Promise<TurnOutcome | undefined> {
    if (event.event === "thinking") {
      this.#think(event.data.text);
      return undefined;
    }
    this.#fold();
    switch (event.event) {
      case "delta":
        this.#options.live.write(this.#stream.push(event.data.text));
        return undefined;
      case "call":
        this.#endText();
        this.#call = beginCall(event.data.call, event.data.tool, event.data.arguments, now());
        this.#options.live.live(() => this.#lines());
        return undefined;
      case "result": {
        const { call, tool, status, code, label } = event.data;
        if (tool === "subagent") await this.#options.log.soon(this.#childrenSeen(call));
        this.#resolve({ status, code, label });
        return undefined;
      }
      case "done":
        this.#endText();
        return event.data;
    }
  }

  /** Whatever ended the turn: nothing of it is live any more. */
  close(): void {
    this.#fold();
    this.#endText();
    if (this.#call !== undefined) this.#resolve({ status: "error", code: "cut", label: undefined });
    this.#ending.abort();
    this.#unlisten();
    this.#options.live.settle();
  }

  #think(text: string): void {
    const { live, context, fullThinking } = this.#options;
    if (this.#thinking === undefined) {
      this.#endText();
      this.#thinking = { text: "", startedMs: now() };
      if (!fullThinking) live.live(() => this.#lines());
    }
    this.#thinking.text += text;
    if (fullThinking) live.write(context.paint("dim", this.#stream.push(text)));
    else live.refresh();
  }

  #fold(): void {
    const thinking = this.#thinking;
    if (thinking === undefined) return;
    this.#thinking = undefined;
    this.#thoughts.push(thinking.text);
    this.#endText();
    const line: Line = [["dim", `thought for ${duration(now() - thinking.startedMs)}`]];
    this.#options.live.settle(this.#options.fullThinking ? [] : [line]);
  }

  /** What is held of a character's half is shown, and the next text begins a line. */
  #endText(): void {
    this.#options.live.write(this.#stream.end());
    this.#stream = visibleStream();
    this.#options.live.freshLine();
  }

  #resolve({ status, code, label }: Omit<NonNullable<CallProgress["end"]>, "ms">): void {
    const { live } = this.#options;
    const call = this.#call;
    if (call === undefined) return;
    call.end = { status, code, label, ms: now() };
    this.#call = undefined;
    live.settle(callLines(call, { spinner: "…", depth: 0, nowMs: now() }));
  }

  #lines(): Line[] {
    const { live, columns, question } = this.#options;
    const thinking = this.#thinking;
    return [
      ...(thinking === undefined ? [] : [
        [["yellow", live.spinner], ["dim", ` thinking ${duration(now() - thinking.startedMs)}`]] as Line,
        ...lastLines(visible(thinking.text.slice(-10_000)), columns() - 1, thinkingLinesShown)
          .map((text): Line => [["dim", text]]),
      ]),
      ...(this.#call === undefined
        ? []
        : callLines(this.#call, { spinner: live.spinner, depth: 0, nowMs: now() })),
      ...question(),
    ];
  }

  #note(record: ChatRecord): void {
    if (record.kind === "spawn" && record.call === this.#call?.call) {
      const child = this.#call.child = new ChildProgress(record.child, record.task, now);
      const { context, live } = this.#options;
      this.#children.push(child.follow(context, this.#ending.signal, () => live.refresh()));
    }
    if (record.kind === "result") this.#onRecord(record.call).resolve();
  }

  /** The children of a call that has its result are shown to their end. */
  async #childrenSeen(call: number): Promise<void> {
    await this.#onRecord(call).promise;
    await Promise.all(this.#children);
  }

  #onRecord(call: number): PromiseWithResolvers<void> {
    const made = this.#recorded.get(call) ?? Promise.withResolvers<void>();
    this.#recorded.set(call, made);
    return made;
  }
}

/** What a turn's requests found in the cache, and how long its first token took. */
export function describeFacts(facts: readonly RequestFacts[]): string {
  if (facts.length === 0) return "";
  const sum = (of: (one: RequestFacts) => number) => facts.reduce((total, one) => total + of(one), 0);
  const kept = sum(({ cacheN }) => cacheN);
  const all = kept + sum(({ promptN }) => promptN);
  const lost = sum(({ lostN }) => lostN);
  return [
    `kept ${kept} of ${count(all, "token")}${all === 0 ? "" : ` (${Math.floor(100 * kept / all)} %)`}`,
    ...(lost === 0 ? [] : [`lost ${lost}`]),
    `first token ${duration(facts[0].firstTokenMs)}`,
    `wrote ${sum(({ predictedN }) => predictedN)}`,
    ...(facts.length === 1 ? [] : [`in ${facts.length} requests`]),
  ].join(" · ");
}

function now(): number {
  return systemClock.monotonic();
}
