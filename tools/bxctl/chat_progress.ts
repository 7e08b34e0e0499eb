// How far a turn's calls and its children's are, as lines of a tree: each call one line, a child under the call that spawned it. A child
// is known by its log alone, which is followed while it runs. It decides nothing and draws nothing.

import { isJsonObject, parseJsonObject } from "../../core/json.ts";
import type { SessionId } from "../../core/ids.ts";
import { describeLabel, type Label } from "../../core/labels.ts";
import { type ChatRecord, newRecords } from "./chat_log.ts";
import type { Line, Piece } from "./chat_screen.ts";
import type { Context } from "./command.ts";
import { count, duration, safeJson, visibleLine } from "./render.ts";

/** Arguments, a task, a child's last words on their one line. */
const shownCharactersMax = 160;
/** Lines of one child's calls; earlier ones are counted. */
const childCallsShownMax = 12;
/** Below this, how long a call took is of no interest. */
const shownDurationMs = 1_000;

export interface CallProgress {
  readonly call: number;
  /** The inner tool, where call_tool names one, and its arguments. */
  readonly title: string;
  readonly startedMs: number;
  /** Absent while it runs. */
  end?: {
    readonly ms: number;
    readonly status: string;
    readonly code: string | undefined;
    readonly label: Label | undefined;
  };
  child?: ChildProgress;
}

export function beginCall(call: number, tool: string, given: string, startedMs: number): CallProgress {
  const outer = tool === "call_tool" ? parseJsonObject(given) : undefined;
  const inner = typeof outer?.name === "string" && isJsonObject(outer.arguments) ? outer : undefined;
  const [name, args] = inner === undefined ? [tool, given] : [String(inner.name), safeJson(inner.arguments)];
  return {
    call,
    title: `[${call}] ${visibleLine(name, 64)} ${visibleLine(args, shownCharactersMax)}`,
    startedMs,
  };
}

/** One child session and, below its calls, its own children. */
export class ChildProgress {
  readonly #calls: CallProgress[] = [];
  #said = "";
  #end: { readonly status: string; readonly reason: string } | undefined;

  constructor(
    readonly session: SessionId,
    private readonly task: string,
    private readonly now: () => number,
  ) {}

  /** Follows the child's log, and those of its children, until it ends. Never throws. */
  async follow(context: Context, signal: AbortSignal, onChange: () => void): Promise<void> {
    const children: Promise<void>[] = [];
    for await (const record of newRecords(context, this.session, { position: { seq: 0 }, signal })) {
      const born = this.#take(record);
      if (born !== undefined) children.push(born.follow(context, signal, onChange));
      onChange();
      if (this.#end !== undefined) break;
    }
    await Promise.all(children);
  }

  /** The child that this record tells of. */
  #take(record: ChatRecord): ChildProgress | undefined {
    switch (record.kind) {
      case "assistant":
        this.#said = record.content;
        this.#calls.push(
          ...record.calls.map((call) => beginCall(call.call, call.name, call.arguments, this.now())),
        );
        return undefined;
      case "result": {
        const call = this.#calls.find((one) => one.call === record.call);
        if (call !== undefined) call.end = { ...record, ms: this.now() };
        return undefined;
      }
      case "spawn": {
        const call = this.#calls.find((one) => one.call === record.call);
        if (call === undefined) return undefined;
        return call.child = new ChildProgress(record.child, record.task, this.now);
      }
      case "end":
        this.#end = record;
        return undefined;
      case "user":
        return undefined;
    }
  }

  lines(spinner: string, depth: number): Line[] {
    const end = this.#end;
    const mark: Piece = end === undefined
      ? ["yellow", spinner]
      : end.status === "completed"
      ? ["green", "✓"]
      : ["red", "✗"];
    const text = end === undefined
      ? this.task
      : end.status === "completed"
      ? this.#said
      : [end.status, end.reason].filter((part) => part !== "").join(": ");
    const head: Line = [
      indent(depth),
      mark,
      " ",
      ["bold", this.session],
      " ",
      ["dim", visibleLine(text, shownCharactersMax)],
    ];
    const hidden = Math.max(0, this.#calls.length - childCallsShownMax);
    return [
      head,
      ...(hidden === 0 ? [] : [[indent(depth + 1), ["dim", `… ${count(hidden, "earlier call")}`]] as Line]),
      ...this.#calls.slice(hidden).flatMap((call) =>
        callLines(call, { spinner, depth: depth + 1, nowMs: this.now() })
      ),
    ];
  }
}

/** The call's own line and, below it, its child's. */
export function callLines(
  { title, startedMs, end, child }: CallProgress,
  { spinner, depth, nowMs }: { spinner: string; depth: number; nowMs: number },
): Line[] {
  const elapsedMs = (end?.ms ?? nowMs) - startedMs;
  const time: Piece[] = elapsedMs < shownDurationMs ? [] : [" ", ["dim", duration(elapsedMs)]];
  const line: Line = end === undefined
    ? [indent(depth), ["yellow", spinner], " ", ["cyan", title], ...time]
    : [
      indent(depth),
      end.status === "ok" ? ["green", "✓"] : ["red", "✗"],
      " ",
      ["cyan", title],
      " → ",
      [end.status === "ok" ? "green" : "red", outcomeWord(end.status, end.code)],
      ...(end.label === undefined ? [] : [` (${describeLabel(end.label)})`]),
      ...time,
    ];
  return [line, ...(child?.lines(spinner, depth + 1) ?? [])];
}

function outcomeWord(status: string, code: string | undefined): string {
  return visibleLine(code === undefined ? status : `${status} ${code}`, 80);
}

function indent(depth: number): string {
  return "  ".repeat(depth);
}
