// The owner's CLI as a person starts it: one child process for each command, its output and its exit code. Everything that the demo and the
// device check ask of the roles goes through here, and nothing else does.

import { join } from "node:path";
import { describeError } from "../../core/errors.ts";
import { type JsonObject, parseJsonObject } from "../../core/json.ts";
import { newSessionAnswerSchema, type TurnOutcome, turnOutcomeSchema } from "../../core/protocol/loop.ts";
import { visibleLine } from "../bxctl/render.ts";
import { type OwnEnvironment, personEnvironment } from "../launch/environment.ts";
import { denoArguments } from "../launch/plan.ts";
import { ownRoot } from "../launch/root.ts";

export interface BxOptions {
  readonly home: string;
  readonly own: OwnEnvironment;
  /** Ends the running command and refuses further ones. */
  readonly signal: AbortSignal;
  /** Longest time of one command. */
  readonly timeoutMs: number;
  /** Called with the words of each command before it runs. */
  readonly onCommand?: (words: readonly string[]) => void;
}

export interface BxOutput {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** A command that did not do what it was to do; the text holds what it printed. */
export class BxFailure extends Error {
  override readonly name = "BxFailure";
}

export class Bx {
  readonly #options: BxOptions;

  constructor(options: BxOptions) {
    this.#options = options;
  }

  async newSession(): Promise<string> {
    const [answer] = await this.json(["new"]);
    return newSessionAnswerSchema.parse(answer).session;
  }

  /** One turn to its end; a turn that failed is an outcome, too. */
  async send(session: string, text: string): Promise<TurnOutcome> {
    const output = await this.run(["send", session, text, "--json"]);
    const outcome = turnOutcomeSchema.safeParse(parseJsonObject(output.stdout));
    if (!outcome.success) throw failure(["send", session, "…"], output);
    return outcome.data;
  }

  /** The JSON objects that a command prints, one a line. */
  async json(words: readonly string[]): Promise<JsonObject[]> {
    const output = await this.run([...words, "--json"]);
    if (output.code !== 0) throw failure(words, output);
    return output.stdout.split("\n").filter((line) => line !== "").map((line) => {
      const value = parseJsonObject(line);
      if (value === undefined) throw failure(words, output);
      return value;
    });
  }

  async run(words: readonly string[]): Promise<BxOutput> {
    const { home, own, signal, timeoutMs, onCommand } = this.#options;
    signal.throwIfAborted();
    onCommand?.(words);
    const child = new Deno.Command(Deno.execPath(), {
      args: [
        ...denoArguments(ownRoot),
        "-A",
        join(ownRoot, "tools", "launch", "command.ts"),
        "--home",
        home,
        ...words,
      ],
      clearEnv: true,
      env: personEnvironment(own),
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
    const end = () => terminate(child);
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      end();
    }, timeoutMs);
    signal.addEventListener("abort", end, { once: true });
    const { code, stdout, stderr } = await child.output();
    clearTimeout(timer);
    signal.removeEventListener("abort", end);
    signal.throwIfAborted();
    if (late) throw new BxFailure(`bx ${visibleLine(words[0])} did not end within ${timeoutMs / 1000} s`);
    const decoder = new TextDecoder();
    return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
  }
}

function failure(words: readonly string[], { code, stdout, stderr }: BxOutput): BxFailure {
  const said = visibleLine((stderr.trim() || stdout.trim()).slice(0, 600));
  return new BxFailure(`bx ${visibleLine(words.join(" "), 80)} ended with exit ${code}: ${said}`);
}

function terminate(child: Deno.ChildProcess): void {
  try {
    child.kill("SIGTERM");
  } catch (error) {
    // It ended in the meantime, which is what was wanted.
    if (!(error instanceof TypeError)) throw new Error(`could not end bx: ${describeError(error)}`);
  }
}
