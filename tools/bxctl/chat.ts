// `bx chat`: a conversation line by line. Ctrl-C cancels the turn that runs, and twice leaves. Without a terminal it reads lines and
// writes plain text. It keeps nothing: the session is loopd's, and another chat goes on with it.

import { exitCodes } from "../../core/errors.ts";
import type { SessionId } from "../../core/ids.ts";
import { describeLabel, type Label } from "../../core/labels.ts";
import { ask, logAnswerSchema, turnEvents } from "./client.ts";
import { type Command, CommandFailure, type Context, sessionOf } from "./command.ts";
import { recordLines } from "./log_view.ts";
import { visibleLine } from "./render.ts";
import { cancelTurn, listSessions, newSession, printTree } from "./sessions.ts";
import { describeOutcome, TurnView } from "./turn_view.ts";

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

const help = [
  "/help   these lines",
  "/label  what this session is labelled",
  "/tree   this session and its children",
  "/log    what it has recorded",
  "/quit   leave; the session stays (end of input does the same)",
  "A line that begins with // is sent with one slash. Ctrl-C cancels the turn, and twice leaves.",
].join("\n");

class Chat {
  #label: Label | undefined;
  #turnRuns = false;
  #interrupted = false;
  #failed = false;
  readonly #leaving = new AbortController();
  readonly #left: Promise<undefined>;

  constructor(private readonly context: Context, private readonly session: SessionId) {
    this.#left = new Promise((resolve) => {
      this.#leaving.signal.addEventListener("abort", () => resolve(undefined), { once: true });
    });
  }

  async run(): Promise<number> {
    const { context, session } = this;
    await this.#refreshLabel();
    if (context.terminal.interactive) {
      context.print(`${session}; /help for help, /quit to leave`);
    }
    const stop = context.terminal.onInterrupt(() => this.#interrupt());
    const lines = context.terminal.lines()[Symbol.asyncIterator]();
    try {
      for (;;) {
        this.#prompt();
        const next = await Promise.race([lines.next(), this.#left]);
        if (next === undefined || next.done) break;
        this.#interrupted = false;
        if (await this.#line(next.value) === "leave" || this.#leaving.signal.aborted) break;
      }
      if (context.terminal.interactive) context.print(`\nleft ${session}; go on with: bx chat ${session}`);
      return this.#failed && !context.terminal.interactive ? exitCodes.failed : exitCodes.done;
    } finally {
      stop();
    }
  }

  async #line(line: string): Promise<"leave" | void> {
    if (line.trim() === "") return;
    if (line.startsWith("//")) return await this.#turn(line.slice(1));
    if (!line.startsWith("/")) return await this.#turn(line);
    const command = line.trim();
    if (command === "/quit") return "leave";
    if (command === "/help") return this.context.print(help);
    await this.#guarded(async () => {
      if (command === "/label") {
        await this.#refreshLabel();
        this.context.print(this.#label === undefined ? "not known" : describeLabel(this.#label));
      } else if (command === "/tree") {
        printTree(this.context, await listSessions(this.context), this.session);
      } else if (command === "/log") {
        const request = { method: "GET", path: `/v1/sessions/${this.session}/log` } as const;
        const { records } = await ask(this.context, "loopd", request, logAnswerSchema);
        for (const record of records) this.context.print(recordLines(record, this.context.paint).join("\n"));
      } else {
        this.context.warn(`there is no ${visibleLine(command, 60)} here; /help lists what there is`);
      }
    });
  }

  async #turn(text: string): Promise<void> {
    const view = new TurnView(this.context);
    this.#turnRuns = true;
    await this.#guarded(async () => {
      for await (const event of turnEvents(this.context, this.session, text, this.#leaving.signal)) {
        if (event.event === "result") this.#label = undefined;
        const outcome = view.show(event);
        if (outcome === undefined) continue;
        this.#label = outcome.label;
        if (outcome.status === "completed") continue;
        this.#failed = true;
        this.context.warn(describeOutcome(outcome));
      }
    });
    this.#turnRuns = false;
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
    if (this.#turnRuns) {
      cancelTurn(this.context, this.session).catch(() =>
        this.context.warn("the turn could not be cancelled")
      );
    } else {
      this.context.terminal.writeError("\nCtrl-C again to leave\n");
      this.#prompt();
    }
  }

  #prompt(): void {
    if (!this.context.terminal.interactive) return;
    const label = this.#label === undefined ? "" : ` [${describeLabel(this.#label)}]`;
    this.context.terminal.write(this.context.paint("bold", `${this.session}${label}> `));
  }

  async #refreshLabel(): Promise<void> {
    this.#label = (await listSessions(this.context)).find(({ session }) => session === this.session)?.label;
  }
}
