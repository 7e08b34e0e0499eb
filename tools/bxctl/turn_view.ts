// How one turn is shown while it runs: the answer as it comes, thinking dimmed, one line for each tool call. On a pipe only the final
// text. It reads events and never decides about the turn.

import { describeLabel } from "../../core/labels.ts";
import type { TurnEvent, TurnOutcome } from "../../core/protocol/loop.ts";
import type { Context } from "./command.ts";
import { visible, visibleLine, visibleStream } from "./render.ts";

/** A call's arguments on its one line. */
const callArgumentsCharactersMax = 160;

type Event<Name extends TurnEvent["event"]> = Extract<TurnEvent, { event: Name }>["data"];

/** Shows events as they come; `show` returns the outcome once it is there. */
export class TurnView {
  #at: "start of line" | "thinking" | "answer" | "call" = "start of line";
  #stream = visibleStream();
  #openCall: number | undefined;

  constructor(private readonly context: Context) {}

  show(event: TurnEvent): TurnOutcome | undefined {
    if (event.event === "done") {
      this.#finish(event.data);
      return event.data;
    }
    if (!this.context.terminal.outputIsTerminal || this.context.json) return undefined;
    if (event.event === "delta") this.#text("answer", event.data.text);
    else if (event.event === "thinking") this.#text("thinking", event.data.text);
    else if (event.event === "call") this.#call(event.data);
    else this.#result(event.data);
    return undefined;
  }

  /** Something else is to be printed: it begins a line. */
  freshLine(): void {
    if (this.context.terminal.outputIsTerminal) this.#newLine();
  }

  #text(kind: "thinking" | "answer", text: string): void {
    if (this.#at !== kind) {
      this.#newLine();
      this.#at = kind;
    }
    const safe = this.#stream.push(text);
    this.context.terminal.write(kind === "thinking" ? this.context.paint("dim", safe) : safe);
  }

  #call({ call, tool, arguments: given }: Event<"call">): void {
    this.#newLine();
    const line = `[${call}] ${visibleLine(tool, 64)} ${visibleLine(given, callArgumentsCharactersMax)}`;
    this.context.terminal.write(this.context.paint("cyan", line));
    this.#at = "call";
    this.#openCall = call;
  }

  #result({ call, tool, status, code, label }: Event<"result">): void {
    if (this.#openCall !== call || this.#at !== "call") {
      this.#newLine();
      this.context.terminal.write(this.context.paint("cyan", `[${call}] ${visibleLine(tool, 64)}`));
    }
    const word = code === undefined ? status : `${status} ${visibleLine(code, 60)}`;
    const painted = this.context.paint(status === "ok" ? "green" : "red", word);
    this.context.terminal.write(` → ${painted} (${describeLabel(label)})\n`);
    this.#at = "start of line";
    this.#openCall = undefined;
  }

  #finish(outcome: TurnOutcome): void {
    if (this.context.json) return;
    if (this.context.terminal.outputIsTerminal) {
      this.#newLine();
    } else if (outcome.status === "completed") {
      this.context.print(visible(outcome.content));
    }
  }

  #newLine(): void {
    const held = this.#stream.end();
    this.#stream = visibleStream();
    if (this.#at !== "start of line") this.context.terminal.write(`${held}\n`);
    this.#at = "start of line";
  }
}

/** Why a turn did not complete, for standard error. */
export function describeOutcome(outcome: TurnOutcome): string {
  const { session, status, reason } = outcome;
  // A reason begins with its word, which the status has said already.
  const prefix = `${status}: `;
  if (status === "cancelled" && reason?.startsWith(prefix) === true) {
    return `the turn of ${session} was cancelled ${visibleLine(reason.slice(prefix.length), 600)}`;
  }
  const why = reason === undefined ? "" : `: ${visibleLine(reason, 600)}`;
  return `the turn of ${session} ${status === "failed" ? "failed" : "was cancelled"}${why}`;
}
