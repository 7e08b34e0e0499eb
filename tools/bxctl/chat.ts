// `bx chat`: a conversation. Ctrl-C cancels the turn that runs, and twice leaves. Without a terminal it reads lines and writes plain
// text, nothing else. It keeps nothing: the session is loopd's, and another chat goes on with it.

import { exitCodes } from "../../core/errors.ts";
import type { SessionId } from "../../core/ids.ts";
import { describeLabel, type Label } from "../../core/labels.ts";
import type { SessionRow, TurnOutcome } from "../../core/protocol/loop.ts";
import { ApprovalWatch, sayWhatWaits } from "./chat_approvals.ts";
import { historyEntriesMax } from "./chat_editor.ts";
import { type ChatFace, chatFace } from "./chat_face.ts";
import { lastSeq, readLog, readRecord } from "./chat_log.ts";
import { describeFacts, OwnLog } from "./chat_turn.ts";
import { type LogRecord, turnEvents } from "./client.ts";
import { type Command, CommandFailure, type Context, sessionOf } from "./command.ts";
import { recordLines } from "./log_view.ts";
import { visible, visibleLine, visibleLines } from "./render.ts";
import { cancelTurn, listSessions, newSession, printTree } from "./sessions.ts";
import { describeOutcome } from "./turn_view.ts";

export const chatCommand: Command = {
  words: "chat",
  summary: "Talk with a session, or with a new one",
  arguments: [{ name: "id", text: "a session's id; none begins a new session", optional: true }],
  example: "chat",
  async run(context, given) {
    const id = given.optionalArgument("id");
    const session = id === undefined ? await newSession(context) : sessionOf(id);
    return await new Chat(context, session).run();
  },
};

/** The chat's own words, for help and for Tab. */
const words: Readonly<Record<string, string>> = {
  "/help": "these lines",
  "/label": "what this session is labelled",
  "/tree": "this session and its children",
  "/log": "what it has recorded",
  "/think": "show thinking in full, or fold it to one line again",
  "/cancel": "cancel the turn that this session runs, begun here or elsewhere",
  "/new": "begin a new session; this one stays",
  "/quit": "leave; the session stays (end of input does the same)",
};

const help = [
  ...Object.entries(words).map(([word, text]) => `${word.padEnd(8)}${text}`),
  "A line that begins with // is sent with one slash. Ctrl-C cancels the turn, and twice leaves.",
].join("\n");
const keysHelp =
  "Alt-Enter, or a backslash at the end of the line, begins another line of the message. Up and Down: earlier messages.";

/** The last exchange, when a session is gone on with. */
const lastTextLinesMax = 40;

class Chat {
  #row: SessionRow | undefined;
  #label: Label | undefined;
  #log: OwnLog;
  #face!: ChatFace;
  #turnRuns = false;
  #interrupted = false;
  #failed = false;
  #fullThinking = false;
  #thoughts = "";
  readonly #leaving = new AbortController();
  readonly #left: Promise<undefined>;

  constructor(private readonly context: Context, private session: SessionId) {
    this.#log = new OwnLog(context, session, { seq: 0 });
    this.#left = new Promise((resolve) => {
      this.#leaving.signal.addEventListener("abort", () => resolve(undefined), { once: true });
    });
  }

  async run(): Promise<number> {
    const { interactive } = this.context.terminal;
    const before = await this.#begin();
    if (interactive) this.#welcome(before);
    const face = this.#face = chatFace({
      context: this.context,
      history: saidBy(before).toReversed().slice(0, historyEntriesMax),
      words: Object.keys(words),
      onInterrupt: () => this.#interrupt(),
    });
    const stop = this.context.terminal.onInterrupt(() => this.#interrupt());
    try {
      for (;;) {
        const line = await Promise.race([face.read(this.#prompt()), this.#left]);
        if (line === undefined) break;
        this.#interrupted = false;
        if (await this.#line(line) === "leave" || this.#leaving.signal.aborted) break;
        this.#interrupted = false;
      }
    } finally {
      stop();
      face.close();
      await this.#log.close();
    }
    if (interactive) this.context.print(`\nleft ${this.session}; go on with: deno task chat ${this.session}`);
    return this.#failed && !interactive ? exitCodes.failed : exitCodes.done;
  }

  /** What the session has recorded so far, where a person will see it; what follows is heard from then on. */
  async #begin(): Promise<LogRecord[]> {
    await this.#refreshLabel();
    if (!this.context.terminal.interactive) return [];
    // A log that is too long to read at once is no reason not to talk.
    const before = await readLog(this.context, this.session).catch((error) => {
      if (error instanceof CommandFailure) return [];
      throw error;
    });
    await this.#log.close();
    this.#log = new OwnLog(this.context, this.session, { seq: lastSeq(before) });
    return before;
  }

  #welcome(before: readonly LogRecord[]): void {
    const { context } = this;
    context.print(`${this.session}; /help for help, /quit to leave`);
    const records = before.flatMap((record) => readRecord(record) ?? []);
    const asked = records.findLastIndex(({ kind }) => kind === "user");
    if (asked === -1) return;
    for (const record of records.slice(asked)) {
      if (record.kind === "user") context.print(context.paint("dim", `› ${shortened(record.text)}`));
      if (record.kind === "assistant" && record.content !== "") context.print(shortened(record.content));
      if (record.kind === "end" && record.status !== "completed") {
        context.print(context.paint("red", visibleLine(`${record.status}: ${record.reason}`)));
      }
    }
    if (this.#row?.status === "running" || this.#row?.status === "waiting") {
      context.print(context.paint("yellow", "its turn still runs; /cancel ends it"));
    }
  }

  async #line(line: string): Promise<"leave" | void> {
    if (line.trim() === "") return;
    if (line.startsWith("//")) return await this.#turn(line.slice(1));
    if (!line.startsWith("/")) return await this.#turn(line);
    const command = line.trim();
    if (command === "/quit") return "leave";
    await this.#guarded(() => this.#command(command));
  }

  async #command(command: string): Promise<void> {
    const { context } = this;
    switch (command) {
      case "/help":
        return context.print(context.terminal.interactive ? `${help}\n${keysHelp}` : help);
      case "/label":
        await this.#refreshLabel();
        return context.print(this.#label === undefined ? "not known" : describeLabel(this.#label));
      case "/tree":
        return printTree(context, await listSessions(context), this.session);
      case "/log":
        for (const record of await readLog(context, this.session)) {
          context.print(recordLines(record, context.paint).join("\n"));
        }
        return;
      case "/think":
        this.#fullThinking = !this.#fullThinking;
        context.print(this.#fullThinking ? "thinking is shown in full" : "thinking is folded to one line");
        if (this.#fullThinking && this.#thoughts !== "") {
          context.print(context.paint("dim", visible(this.#thoughts)));
        }
        return;
      case "/cancel": {
        const { cancelled } = await cancelTurn(context, this.session);
        return context.print(
          cancelled === false ? `${this.session} runs no turn` : `cancelled the turn of ${this.session}`,
        );
      }
      case "/new":
        this.session = await newSession(context);
        this.#thoughts = "";
        await this.#begin();
        return context.print(this.session);
      default:
        context.warn(`there is no ${visibleLine(command, 60)} here; /help lists what there is`);
    }
  }

  async #turn(text: string): Promise<void> {
    this.#turnRuns = true;
    await this.#guarded(async () => {
      const interactive = this.context.terminal.interactive;
      if (interactive) this.#log.follow();
      const facts = this.#log.factsAtEnd();
      const outcome = await this.#shownTurn(text);
      if (outcome === undefined) return;
      this.#label = outcome.label;
      if (outcome.status !== "completed") {
        this.#failed = true;
        this.context.warn(describeOutcome(outcome));
      }
      const described = describeFacts(await facts());
      if (described !== "") this.context.print(this.context.paint("dim", described));
    });
    this.#turnRuns = false;
  }

  async #shownTurn(text: string): Promise<TurnOutcome | undefined> {
    const { context, session } = this;
    const ending = new AbortController();
    const turn = this.#face.beginTurn(this.#log, { fullThinking: this.#fullThinking });
    const watch = context.terminal.interactive
      ? new ApprovalWatch(context, session, this.#face).run(() => turn.waits, ending.signal)
      : sayWhatWaits(context, session, {
        waits: () => turn.waits,
        say: (text) => context.warn(text),
        signal: ending.signal,
      });
    try {
      let outcome: TurnOutcome | undefined;
      for await (const event of turnEvents(context, session, text, this.#leaving.signal)) {
        if (event.event === "result") this.#label = undefined;
        outcome = await turn.show(event);
      }
      return outcome;
    } finally {
      ending.abort();
      await watch;
      turn.close();
      if (turn.thoughts !== "") this.#thoughts = turn.thoughts;
    }
  }

  // A refusal (busy, say) is told, and the conversation goes on; roles that do not run end it.
  async #guarded(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (!(error instanceof CommandFailure) || error.exitCode === exitCodes.notRunning) throw error;
      this.#failed = true;
      this.context.warn(error.message);
    }
  }

  #interrupt(): void {
    if (this.#interrupted) return this.#leaving.abort();
    this.#interrupted = true;
    if (!this.#turnRuns) return this.#face.remark("Ctrl-C again to leave");
    if (this.context.terminal.screen !== undefined) {
      this.#face.print(this.context.paint("dim", "cancelling; Ctrl-C again leaves at once"));
    }
    cancelTurn(this.context, this.session).catch(() =>
      this.#face.complain("the turn could not be cancelled")
    );
  }

  #prompt(): string {
    const label = this.#label === undefined ? "" : ` ${describeLabel(this.#label)}`;
    const slot = this.#row === undefined ? "" : ` · slot ${this.#row.slot}`;
    return this.context.paint("bold", `${this.session}${label}${slot} ›`) + " ";
  }

  async #refreshLabel(): Promise<void> {
    this.#row = (await listSessions(this.context)).find(({ session }) => session === this.session);
    this.#label = this.#row?.label;
  }
}

/** What the person said, oldest first. */
function saidBy(records: readonly LogRecord[]): string[] {
  return records.flatMap((record) => {
    const read = readRecord(record);
    return read?.kind === "user" ? [visible(read.text)] : [];
  });
}

function shortened(text: string): string {
  const lines = visibleLines(text).split("\n");
  const hidden = lines.length - lastTextLinesMax;
  return hidden <= 0
    ? lines.join("\n")
    : [...lines.slice(0, lastTextLinesMax), `… +${hidden} lines`].join("\n");
}
