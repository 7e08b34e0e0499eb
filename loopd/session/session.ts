// One session in memory: the fold of its log. Every change goes through `append`, which is durable first and folded after, so that what
// the process believes is never ahead of the disk. Labels only rise here, and messages only grow within an epoch.

import type { CallId, SessionId } from "../../core/ids.ts";
import { joinLabels, type Label, publicTrusted } from "../../core/labels.ts";
import { assertOurs } from "../../core/errors.ts";
import type { Usage } from "../../core/protocol/loop.ts";
import { renderEpochStart, renderMessage, type SaidRecord } from "../context/prompt.ts";
import type { SessionLog } from "./log.ts";
import type { HistoryMode, ModelCall, NewRecord, RecordOf, SessionRecord, Timings } from "./record.ts";

export interface Said {
  readonly seq: number;
  readonly json: string;
  readonly record: SaidRecord;
}

/** A message that the epoch itself brings: baseline and summary. */
interface EpochStart {
  readonly seq: number;
  readonly json: string;
  readonly record?: undefined;
}

export class Session {
  readonly id: SessionId;
  #log: SessionLog;
  #followers = new Set<(record: SessionRecord) => void>();
  /** The store's: the log grew. */
  onAppend: () => void = () => {};

  parent: SessionId | null = null;
  label: Label = publicTrusted;
  /** The epoch's tools array as JSON text, and its messages as the inside of a JSON array: both only ever sent, never parsed. */
  toolsJson = "[]";
  messagesJson = "";
  /** The same messages one by one, with the records that they came from: what a compaction keeps is rendered from here. */
  #messages: (Said | EpochStart)[] = [];
  #shortForms = new Map<CallId, string>();
  history: HistoryMode = "structured";
  /** No model message stands in this epoch yet, so its history may still change its form for free. */
  atEpochStart = true;
  epoch = 0;
  #epochSummary = "";
  /** Seq of the last record, the last model message and the last user text: where a compaction may cut. */
  lastSeq = 0;
  lastAssistantSeq = 0;
  lastUserSeq = 0;
  turn = 0;
  lastCall: CallId = 0;
  /** Calls of the last model message that have no result yet, in order. */
  unanswered: ModelCall[] = [];
  /** The last message, while the turn is open: what the loop does next follows from it. */
  last: "none" | "user" | "assistant" | "result" = "none";
  lastContent = "";
  lastUserText = "";
  /** How the last turn ended; `undefined` while it is open or before the first. */
  lastEnd: RecordOf<"end"> | undefined;
  /** The open or last turn, for its outcome. */
  turnStartedAt = "";
  turnIterations = 0;
  /** Crashes that the open turn was resumed after. */
  turnCrashes = 0;
  #paused = false;
  turnResults: RecordOf<"result">[] = [];
  turnUsage: Usage = noUsage();
  usage: Usage = noUsage();
  /** Tokens in context after the last request of this epoch; 0 before it. */
  contextTokens = 0;
  /** Of the last model message: its tokens, and whether it held thinking. */
  lastPredictedN = 0;
  lastThought = false;
  /** Tokens of its own prefix that were computed again, over all requests. */
  lost = 0;
  children: RecordOf<"spawn">[] = [];
  #childrenBefore = 0;

  constructor(id: SessionId, log: SessionLog, records: readonly SessionRecord[]) {
    this.id = id;
    this.#log = log;
    for (const record of records) this.#fold(record);
  }

  /** True between a turn's user text and its end record. */
  get turnOpen(): boolean {
    return this.turn > 0 && this.lastEnd === undefined;
  }

  /** What was said in the current epoch up to `seq`, each as its record and the JSON text that it became. */
  saidUpTo(seq: number): Said[] {
    return this.#messages.filter((message): message is Said =>
      message.record !== undefined && message.seq <= seq
    );
  }

  /** The short form of a tool's output that was too long for the context, where one was made. */
  shortForm(call: CallId): string | undefined {
    return this.#shortForms.get(call);
  }

  /** The summary that this epoch began with, or the empty text. */
  get epochSummary(): string {
    return this.#epochSummary;
  }

  /** Children that calls of the open or last turn spawned. */
  get childrenOfTurn(): RecordOf<"spawn">[] {
    return this.children.slice(this.#childrenBefore);
  }

  /** What the restart before now was to this session's open turn. */
  get lastStop(): "stop" | "crash" {
    return this.#paused ? "stop" : "crash";
  }

  async append(...records: NewRecord[]): Promise<SessionRecord[]> {
    const written = await this.#log.append(records);
    for (const record of written) {
      this.#fold(record);
      for (const follower of this.#followers) follower(record);
    }
    this.onAppend();
    return written;
  }

  /** Hears of every record from now on; returns how to stop. */
  follow(follower: (record: SessionRecord) => void): () => void {
    this.#followers.add(follower);
    return () => this.#followers.delete(follower);
  }

  get followed(): boolean {
    return this.#followers.size > 0;
  }

  /** Its log did not take a write: this object must give way to one read from disk. */
  get broken(): boolean {
    return this.#log.broken;
  }

  close(): Promise<void> {
    return this.#log.close();
  }

  #fold(record: SessionRecord): void {
    this.lastSeq = record.seq;
    // Whatever is written after a pause was written by a loopd that had started again.
    if (record.kind !== "repair") this.#paused = record.kind === "pause";
    switch (record.kind) {
      case "open":
        assertOurs(record.session === this.id, `the log of ${this.id} opens with its own id`);
        this.parent = record.parent;
        this.label = record.label;
        return;
      case "epoch": {
        const kept = this.#messages.filter(({ seq }) => seq > (record.coversTo ?? 0));
        this.#messages = [...renderEpochStart(record).map((json) => ({ seq: record.seq, json })), ...kept];
        this.#join();
        this.atEpochStart = true;
        this.toolsJson = record.tools;
        this.epoch = record.epoch;
        this.#epochSummary = record.summary ?? "";
        this.contextTokens = 0;
        return;
      }
      case "history":
        this.history = record.mode;
        this.#messages = this.#messages.map((message) =>
          message.record === undefined
            ? message
            : { ...message, json: renderMessage(message.record, record.mode) }
        );
        this.#join();
        this.contextTokens = 0;
        return;
      case "user":
        this.turn = record.turn;
        this.turnStartedAt = record.time;
        this.turnIterations = 0;
        this.turnCrashes = 0;
        this.#childrenBefore = this.children.length;
        this.turnResults = [];
        this.turnUsage = noUsage();
        this.lastEnd = undefined;
        this.last = "user";
        this.lastUserText = record.text;
        this.lastUserSeq = record.seq;
        this.#say(record);
        return;
      case "assistant":
        this.last = "assistant";
        this.lastContent = record.content;
        this.atEpochStart = false;
        this.unanswered = [...record.calls];
        this.lastCall = record.calls.at(-1)?.call ?? this.lastCall;
        if (record.calls.length > 0) this.turnIterations++;
        this.lastAssistantSeq = record.seq;
        this.contextTokens = record.timings.cacheN + record.timings.promptN + record.timings.predictedN;
        this.lastPredictedN = record.timings.predictedN;
        this.lastThought = record.thinking !== "";
        this.lost += record.lostN;
        this.turnUsage = addUsage(this.turnUsage, record.timings);
        this.usage = addUsage(this.usage, record.timings);
        this.#say(record);
        return;
      case "spawn":
        this.children.push(record);
        return;
      case "result": {
        const answered = this.unanswered.shift();
        assertOurs(
          answered?.call === record.call,
          `result ${record.call} of ${this.id} answers the first open call`,
        );
        this.last = "result";
        this.label = joinLabels(this.label, record.label);
        this.turnResults.push(record);
        this.#say(record);
        return;
      }
      case "end":
        this.lastEnd = record;
        // A failed turn leaves the model nothing to read after the last message; templates that insist on alternation would refuse
        // every later request. After an empty answer the note would be the second of its kind.
        if (record.status !== "completed" && this.last !== "assistant") this.#say(record);
        return;
      case "resume":
        if (record.after === "crash") this.turnCrashes++;
        return;
      case "output-summary":
        this.#shortForms.set(record.call, record.text);
        return;
      case "pause":
      case "repair":
        return;
    }
  }

  #say(record: SaidRecord): void {
    const json = renderMessage(record, this.history);
    this.#messages.push({ seq: record.seq, json, record });
    this.messagesJson += "," + json;
  }

  #join(): void {
    this.messagesJson = this.#messages.map(({ json }) => json).join(",");
  }
}

export function noUsage(): Usage {
  return { promptTokens: 0, cachedTokens: 0, completionTokens: 0 };
}

export function addUsage(usage: Usage, timings: Timings): Usage {
  return {
    promptTokens: usage.promptTokens + timings.cacheN + timings.promptN,
    cachedTokens: usage.cachedTokens + timings.cacheN,
    completionTokens: usage.completionTokens + timings.predictedN,
  };
}
