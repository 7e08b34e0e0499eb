// One run of the soak: a fresh home, both roles under the launcher, the owner's message, the kill where the point says, and then whatever it
// takes until the turn has ended and a second one has, too. It brings the evidence about; checks.ts judges it.

import { join } from "node:path";
import { describeError } from "../../core/errors.ts";
import type { HomePaths } from "../../core/home.ts";
import { isSessionId, parseSessionId, type SessionId } from "../../core/ids.ts";
import { sessionsAnswerSchema } from "../../core/protocol/loop.ts";
import { type RoleName, roleNames } from "../../core/protocol/common.ts";
import { PeerUnreachable, requestEvents, requestJson } from "../../core/wire/client.ts";
import { makePrivateHome } from "../demo/private_home.ts";
import type { LaunchEvent, Supervisor } from "../launch/supervise.ts";
import { up } from "../launch/up.ts";
import type { Behaviour } from "../stubs/consult_behaviour.ts";
import type { ConsultRequest } from "../stubs/consult_endpoint.ts";
import type { Reply, ScriptRequest } from "../stubs/model_script.ts";
import { checkRun, type Violation } from "./checks.ts";
import { answerTo, conversation, firstText, lastText, secondText } from "./conversation.ts";
import { orderDirectories } from "./entries.ts";
import { readLog } from "./evidence.ts";
import { type Order, orderFile, saidSchema } from "./gate.ts";
import type { Measure, Point, Trigger } from "./points.ts";
import type { Answers, Stage } from "./stage.ts";

export const rootSession = parseSessionId("chat-soak");

export interface RunOutcome {
  readonly violations: readonly Violation[];
  /** The kill fell where the point says; otherwise after the turn, when nothing was under way. */
  readonly reached: boolean;
  /** What the role was about when it was held. */
  readonly heldAt?: string;
  readonly elapsedMs: number;
  /** Kept where something was violated. */
  readonly home?: string;
}

/** From the message to the end of both turns, restarts included: brokerd is waited for 15 s by loopd itself. */
const runMsMax = 40_000;
/**
 * Changes to brokerd's head.json in a turn that are drawn from. It is written by time, so counting them would draw other points on every
 * machine.
 */
const headSteps = 9;
const newline = 0x0a;
/** Small enough that the shortest reply comes in some deltas. */
const chunkBytes = 6;

/** Plays one point and judges what is left. */
export async function playPoint(stage: Stage, point: Point, signal: AbortSignal): Promise<RunOutcome> {
  const began = performance.now();
  const home = await makeHome(stage, point.history);
  const run = new Run(stage, home.paths, point.run);
  let violations: Violation[];
  try {
    await run.play(signal, point);
    violations = [...run.faults, ...await checkRun(run.seen())];
  } catch (error) {
    if (signal.aborted) {
      await home[Symbol.asyncDispose]();
      throw error;
    }
    violations = [{ check: "the run comes to its end", text: describeError(error) }, ...run.faults];
  }
  if (violations.length === 0) await home[Symbol.asyncDispose]();
  return {
    violations,
    reached: run.reached,
    ...(run.heldAt === undefined ? {} : { heldAt: run.heldAt }),
    elapsedMs: Math.round(performance.now() - began),
    ...(violations.length === 0 ? {} : { home: home.paths.home }),
  };
}

/** Two undisturbed runs: one counts what the roles do, one takes the time. Throws where even these do not hold. */
export async function measure(stage: Stage, signal: AbortSignal): Promise<Measure> {
  let counted: Run | undefined;
  let turnMs = 0;
  for (const tell of [true, false]) {
    await using home = await makeHome(stage, "auto");
    const run = new Run(stage, home.paths, 0, tell);
    await run.play(signal, undefined);
    const violations = [...run.faults, ...await checkRun(run.seen())];
    if (violations.length > 0) {
      throw new Error(`an undisturbed run does not hold: ${violations.map(({ text }) => text).join("; ")}`);
    }
    counted ??= run;
    turnMs = run.turnMs;
  }
  const { steps: { loopd, brokerd }, modelRequests, consults } = counted!.firstTurn;
  return { steps: { loopd, brokerd: brokerd + headSteps }, modelRequests, consults, turnMs };
}

function makeHome(stage: Stage, history: Point["history"]) {
  return makePrivateHome({
    loopdToml: `[inference]\nurl = "${stage.model.url}"\nhistory = "${history}"\n`,
    brokerdToml: `[consult]\nurl = "${stage.recorder.url}"\nmodel = "practice-cloud"\nsecret = "consult"\n`,
    grantsToml: `[[grant]]\ntool = "consult"\nmax_taint = "private"\nallow_untrusted = true\n`,
    secrets: { consult: "practice-key" },
  }, { prefix: "bx-soak-" });
}

class Run implements Answers {
  readonly #stage: Stage;
  readonly #paths: HomePaths;
  readonly #number: number;
  readonly #tell: boolean;
  readonly #before: { readonly model: number; readonly bodies: number };

  readonly #pids = new Map<RoleName, number>();
  readonly #ready = new Set<RoleName>();
  readonly #lives: Record<RoleName, number> = { loopd: 0, brokerd: 0 };
  readonly #killed = new Set<number>();
  #supervisor: Supervisor | undefined;
  #stopping = false;
  #stopped = false;
  #changed = Promise.withResolvers<void>();

  #mode: readonly RoleName[] = [];
  #trigger: Trigger | undefined;
  #againMs: number | undefined;
  #tear: number | undefined;
  #torn = false;
  #kills = 0;
  #brokerKills = 0;
  readonly #timers = new Set<ReturnType<typeof setTimeout>>();
  readonly #steps: Record<RoleName, number> = { loopd: 0, brokerd: 0 };
  #modelRequests = 0;
  #consults = 0;

  readonly faults: Violation[] = [];
  reached = false;
  heldAt: string | undefined;
  turnMs = 0;
  /** What was counted when the first turn had ended. */
  firstTurn: Omit<Measure, "turnMs"> = {
    steps: { loopd: 0, brokerd: 0 },
    modelRequests: 0,
    consults: 0,
  };

  constructor(stage: Stage, paths: HomePaths, number: number, tell = false) {
    this.#stage = stage;
    this.#paths = paths;
    this.#number = number;
    this.#tell = tell;
    this.#before = {
      model: stage.model.requests.at(-1)?.order ?? 0,
      bodies: stage.recorder.requests.at(-1)?.order ?? 0,
    };
  }

  seen() {
    const { model, recorder } = this.#stage;
    return {
      run: this.#number,
      paths: this.#paths,
      root: rootSession,
      brokerKills: this.#brokerKills,
      torn: this.#torn,
      bodies: recorder.requests.filter(({ order }) => order > this.#before.bodies),
      modelRequests: model.requests.filter(({ order }) => order > this.#before.model),
    };
  }

  /** Resolves with every role stopped, whatever happened. */
  async play(signal: AbortSignal, point: Point | undefined): Promise<void> {
    if (point !== undefined) {
      this.#mode = point.mode === "L" ? ["loopd"] : point.mode === "B" ? ["brokerd"] : roleNames;
      this.#trigger = point.trigger;
      this.#againMs = point.againMs;
      this.#tear = point.tear;
    }
    this.#writeOrders();
    this.#stage.answers = this;
    const supervisor = await up({
      paths: this.#paths,
      own: this.#stage.own,
      entries: this.#stage.entries,
      onEvent: (event) => this.#hear(event),
    });
    if ("faults" in supervisor) throw new Error(supervisor.faults.map(({ text }) => text).join("; "));
    this.#supervisor = supervisor;
    const deadline = AbortSignal.any([signal, this.#deadline()]);
    try {
      await this.#converse(deadline);
    } finally {
      this.#stopping = true;
      for (const timer of this.#timers) clearTimeout(timer);
      const code = await supervisor.stop();
      if (code !== 0) this.#fault("the launcher ends in order", `with code ${code}`);
      this.#stage.answers = undefined;
    }
  }

  async #converse(deadline: AbortSignal): Promise<void> {
    await this.#until(deadline, "both roles serve", () => this.#ready.size === 2);
    const began = performance.now();
    if (this.#trigger?.kind === "time") this.#later(this.#trigger.afterMs, () => this.#killFirst());
    await this.#endTurn(deadline, rootSession, firstText(this.#number));
    this.turnMs = performance.now() - began;
    this.firstTurn = {
      steps: { ...this.#steps },
      modelRequests: this.#modelRequests,
      consults: this.#consults,
    };
    this.reached = this.#kills > 0;
    if (this.#trigger !== undefined && !this.reached) this.#killFirst();
    await this.#until(
      deadline,
      "everything is back",
      () => this.#timers.size === 0 && this.#againMs === undefined && this.#ready.size === 2,
    );
    await this.#endTurn(deadline, rootSession, firstText(this.#number));
    await this.#endTurn(deadline, rootSession, secondText(this.#number));
    for await (const { name } of Deno.readDir(this.#paths.sessions)) {
      if (isSessionId(name) && name !== rootSession) {
        await this.#endTurn(deadline, name, lastText(this.#number));
      }
    }
    await this.#lookAtSessions(deadline);
  }

  async #lookAtSessions(signal: AbortSignal): Promise<void> {
    const { body } = await requestJson(this.#paths.loopSocket, {
      method: "GET",
      path: "/v1/sessions",
      signal,
    });
    const { status: _, ...answer } = body as { status: string };
    for (const { session, status } of sessionsAnswerSchema.parse(answer).sessions) {
      if (status !== "completed") {
        this.#fault("every session is at rest at the end", `${session} is ${status}`);
      }
    }
  }

  // As the owner would: says it, waits for the end, and says it again only where the session shows no trace of it.
  async #endTurn(deadline: AbortSignal, session: SessionId, text: string): Promise<void> {
    for (;;) {
      await this.#until(deadline, "loopd serves", () => this.#ready.has("loopd"));
      const life = this.#lives.loopd;
      const { records } = await readLog(this.#paths, session);
      const turn = records.find((record) => record.kind === "user" && record.text === text);
      try {
        if (turn?.kind !== "user") await this.#send(deadline, session, text);
        else if (records.some((record) => record.kind === "end" && record.turn === turn.turn)) return;
        else await this.#follow(deadline, session, turn.turn);
      } catch (error) {
        if (!(error instanceof PeerUnreachable)) throw error;
        await this.#until(
          deadline,
          `loopd is back (${error.message})`,
          () => this.#lives.loopd > life && this.#ready.has("loopd"),
        );
      }
    }
  }

  async #send(deadline: AbortSignal, session: SessionId, text: string): Promise<void> {
    const path = `/v1/sessions/${session}/turns`;
    const socket = this.#paths.loopSocket;
    for await (
      const { event } of requestEvents(socket, { method: "POST", path, body: { text }, signal: deadline })
    ) {
      if (event === "done") return;
    }
    throw new PeerUnreachable(socket, "the stream ended without done", true);
  }

  async #follow(deadline: AbortSignal, session: SessionId, turn: number): Promise<void> {
    const path = `/v1/sessions/${session}/log?follow=1`;
    const socket = this.#paths.loopSocket;
    for await (const { data } of requestEvents(socket, { method: "GET", path, signal: deadline })) {
      const record = data as { kind?: unknown; turn?: unknown };
      if (record.kind === "end" && record.turn === turn) return;
    }
    throw new PeerUnreachable(socket, "the log's stream ended", true);
  }

  // ---- what the roles say and do

  #hear(event: LaunchEvent): void {
    switch (event.event) {
      case "started":
        this.#pids.set(event.role, event.pid);
        this.#lives[event.role]++;
        if (this.#kills === 1 && this.#againMs !== undefined && event.role === this.#mode[0]) {
          this.#later(this.#againMs, () => this.#kill());
          this.#againMs = undefined;
        }
        break;
      case "role":
        if (event.said.event === "ready") this.#ready.add(event.role);
        else this.#hearGate(event.role, event.said);
        break;
      case "exited": {
        const pid = this.#pids.get(event.role);
        this.#pids.delete(event.role);
        if (event.role === "loopd" && this.#tear !== undefined && !this.#stopping) this.#tearNewestLog();
        this.#ready.delete(event.role);
        if (this.#stopping ? event.code !== 0 : pid === undefined || !this.#killed.has(pid)) {
          this.#fault("no role ends unless it is killed", `${event.role} ended with code ${event.code}`);
        }
        break;
      }
      case "stopped":
        this.#stopped = true;
        break;
    }
    this.#wake();
  }

  #hearGate(role: RoleName, said: Readonly<Record<string, unknown>>): void {
    const parsed = saidSchema.safeParse(said);
    if (!parsed.success) return;
    if (parsed.data.event === "soak-step") {
      if (!parsed.data.what.includes("head.json")) this.#steps[role]++;
    } else {
      this.heldAt = parsed.data.what;
      this.#killFirst();
    }
  }

  model(request: ScriptRequest): Reply {
    const reply = conversation(request);
    const trigger = this.#trigger;
    if (++this.#modelRequests !== (trigger?.kind === "model" ? trigger.request : 0)) return reply;
    const { deltas, answers } = trigger as Extract<Trigger, { kind: "model" }>;
    const kill = () => this.#killAndWait(answers === "afterwards");
    if (deltas === 0) return { ...reply, hold: kill() };
    return {
      ...reply,
      chunkBytes,
      beforeChunk: (number) => number === deltas ? kill() : undefined,
    };
  }

  async consult(request: ConsultRequest): Promise<Behaviour> {
    const trigger = this.#trigger;
    if (++this.#consults === (trigger?.kind === "consult" ? trigger.request : 0)) {
      const { answers } = trigger as Extract<Trigger, { kind: "consult" }>;
      await this.#killAndWait(answers === "afterwards");
    }
    const asked = JSON.parse(new TextDecoder().decode(request.content)).messages[0].content;
    return { kind: "answer", content: answerTo(asked) };
  }

  /** What was asked while it was killed is answered at once, or when it is back. */
  async #killAndWait(untilBack: boolean): Promise<void> {
    const lives = { ...this.#lives };
    this.#killFirst();
    const back = () => this.#mode.every((role) => this.#lives[role] > lives[role] && this.#ready.has(role));
    while (untilBack && !this.#stopping && !back()) await this.#changed.promise;
  }

  // ---- the kill

  #killFirst(): void {
    if (this.#kills === 0) this.#kill();
  }

  #kill(): void {
    if (this.#stopping) return;
    this.#kills++;
    // What comes back is not to be held again.
    for (const role of roleNames) removeIfThere(this.#orderPath(role));
    for (const role of this.#mode) {
      const pid = this.#pids.get(role);
      if (pid === undefined) continue;
      this.#killed.add(pid);
      if (role === "brokerd") this.#brokerKills++;
      this.#ready.delete(role);
      Deno.kill(pid, "SIGKILL");
    }
    this.#wake();
  }

  // The launcher tells of an end before it starts the role again, and waits for whoever listens.
  #tearNewestLog(): void {
    const { sessions } = this.#paths;
    const logs = [...Deno.readDirSync(sessions)].map(({ name }) => join(sessions, name, "log.jsonl"))
      .map((path) => ({ path, bytes: readIfThere(path), mtime: modified(path) }))
      .filter(({ bytes }) => bytes.length > 0)
      .sort((one, other) => other.mtime - one.mtime);
    const newest = logs.at(0);
    if (newest === undefined) return;
    const from = newest.bytes.lastIndexOf(newline, newest.bytes.length - 2) + 1;
    Deno.truncateSync(newest.path, from + Math.floor(this.#tear! * (newest.bytes.length - from)));
    this.#tear = undefined;
    this.#torn = true;
  }

  #writeOrders(): void {
    const trigger = this.#trigger;
    for (const role of roleNames) {
      const order: Order | undefined = trigger?.kind === "write" && trigger.role === role
        ? { hold: trigger.hold }
        : this.#tell
        ? { tell: true }
        : undefined;
      if (order !== undefined) Deno.writeTextFileSync(this.#orderPath(role), JSON.stringify(order));
    }
  }

  #orderPath(role: RoleName): string {
    return join(this.#paths[orderDirectories[role]], orderFile);
  }

  // ---- waiting

  #later(delayMs: number, act: () => void): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      act();
      this.#wake();
    }, delayMs);
    this.#timers.add(timer);
  }

  #deadline(): AbortSignal {
    const controller = new AbortController();
    const timer = setTimeout(() => controller.abort(new Error(`not within ${runMsMax} ms`)), runMsMax);
    this.#supervisor!.ended.then(() => {
      clearTimeout(timer);
      controller.abort(new Error("the launcher has ended"));
    });
    controller.signal.addEventListener("abort", () => this.#wake(), { once: true });
    return controller.signal;
  }

  async #until(deadline: AbortSignal, what: string, holds: () => boolean): Promise<void> {
    while (!holds()) {
      if (deadline.aborted || this.#stopped) {
        throw new Error(`waited in vain until ${what}: ${describeError(deadline.reason)}`);
      }
      await this.#changed.promise;
    }
  }

  #wake(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }

  #fault(check: string, text: string): void {
    this.faults.push({ check, text });
  }
}

function readIfThere(path: string): Uint8Array {
  try {
    return Deno.readFileSync(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return new Uint8Array();
    throw error;
  }
}

function modified(path: string): number {
  try {
    return Deno.statSync(path).mtime?.getTime() ?? 0;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return 0;
    throw error;
  }
}

function removeIfThere(path: string): void {
  try {
    Deno.removeSync(path);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}
