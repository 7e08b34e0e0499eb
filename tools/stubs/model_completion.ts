// One chat request, from its body to its last byte: parse, render, take a slot, ask the script, speak, give
// the slot back.
// Owns: the order of these steps and what a slot remembers afterwards (prompt and generated text without the
// last sampled token: the law of the prefix). The slot is given back before the last bytes go out, so that a
// client that reads `[DONE]` may use it at once. What is said comes from the script alone.

import {
  addDelta,
  chunk,
  completion,
  endChunks,
  type Moments,
  type SpokenMessage,
  timings,
} from "./model_answer.ts";
import { type Chat, type ChatLimits, parseChat } from "./model_chat.ts";
import { generate, type Generation, type Piece } from "./model_generation.ts";
import type { HttpResponse } from "./model_http.ts";
import type { CancelNotices } from "./model_notices.ts";
import type { ModelRequest, Requests } from "./model_requests.ts";
import type { Fault, Reply, Script } from "./model_script.ts";
import type { Slot, Slots } from "./model_slots.ts";
import { ServerFault } from "./model_template.ts";
import { joinTokens, type Tokens } from "./model_tokens.ts";

const progressEventsDefault = 2;

/** What requests share: made once by the server, used by each request. */
export interface ModelCore {
  readonly limits: ChatLimits;
  readonly tokensPerSecond: number;
  readonly slots: Slots;
  readonly requests: Requests;
  readonly notices: CancelNotices;
  script: Script;
  launched: number;
  /** Fires when the server closes: every request in flight ends. */
  readonly closing: AbortSignal;
}

/** Answers `POST /v1/chat/completions`. Ends when the last byte is out or the client is gone. */
export async function completeChat(
  core: ModelCore,
  record: ModelRequest,
  response: HttpResponse,
): Promise<void> {
  let chat: Chat;
  try {
    chat = parseChat(core.limits, record);
  } catch (fault) {
    if (!(fault instanceof ServerFault)) throw fault;
    record.status = fault.status;
    core.requests.conclude(record, "refused");
    return await response.fault(fault);
  }
  const pinned = core.slots.pinned(chat.body.id_slot);
  record.slot = pinned?.id;
  record.collided = core.slots.wouldWait(pinned);
  record.state = record.collided ? "queued" : "running";
  const run = new Run(core, record, { chat, response });
  const stopWatching = run.watchClient();
  const taking = core.slots.take(pinned, chat.promptTokens, run.cancelled);
  core.requests.changed();
  try {
    const slot = await taking;
    if (slot === undefined) core.requests.conclude(record, "aborted");
    else await run.launch(slot);
  } finally {
    stopWatching();
  }
}

/** Thrown inside a run when its client has left. */
class Cancelled extends Error {}

/** Thrown inside a run whose scripted fault has already done to the connection what it wanted. */
class Ended extends Error {}

class Run {
  readonly #core: ModelCore;
  readonly #record: ModelRequest;
  readonly #response: HttpResponse;
  readonly #chat: Chat;
  readonly #cancel = new AbortController();
  readonly #moments: Moments = { launchedMs: 0, firstTokenMs: 0, endedMs: 0 };
  readonly #spoken: Tokens[] = [];
  #slot!: Slot;
  #begun = false;
  #speaking = false;
  #released = false;

  constructor(core: ModelCore, record: ModelRequest, wire: { chat: Chat; response: HttpResponse }) {
    this.#core = core;
    this.#record = record;
    this.#chat = wire.chat;
    this.#response = wire.response;
  }

  get cancelled(): AbortSignal {
    return this.#cancel.signal;
  }

  /** A stream that speaks notices a lost client at once; everything else as late as the notices say. */
  watchClient(): () => void {
    const { gone } = this.#response.connection;
    const { closing, notices } = this.#core;
    let disarm = () => {};
    const leave = () => {
      if (this.#speaking && this.#record.stream) this.#cancel.abort();
      else disarm = notices.arm(() => this.#cancel.abort());
    };
    const close = () => this.#cancel.abort();
    gone.addEventListener("abort", leave, { once: true });
    closing.addEventListener("abort", close, { once: true });
    if (gone.aborted) leave();
    if (closing.aborted) close();
    return () => {
      disarm();
      gone.removeEventListener("abort", leave);
      closing.removeEventListener("abort", close);
    };
  }

  async launch(slot: Slot): Promise<void> {
    this.#slot = slot;
    this.#record.slot = slot.id;
    this.#record.state = "running";
    this.#moments.launchedMs = performance.now();
    this.#core.requests.changed();
    try {
      const reply = await this.#askScript();
      if (reply.fault?.kind === "status") return await this.#answerStatus(reply.fault);
      this.#begin();
      if (reply.fault?.kind === "silent") return await this.#staySilent(reply.fault);
      await this.#prefill(reply);
      const generation = this.#generate(reply);
      const said = await this.#speak(reply, generation);
      await this.#finish(generation, said);
    } catch (fault) {
      if (fault instanceof Cancelled) this.#release("aborted");
      else if (!(fault instanceof Ended)) await this.#fail(fault);
    }
  }

  #askScript(): Promise<Reply> {
    const { messages, tools, prompt } = this.#record;
    const index = this.#core.launched++;
    const slot = this.#slot.id;
    const { mustCall } = this.#chat;
    return this.#unlessCancelled(() => this.#core.script({ messages, tools, mustCall, slot, index, prompt }));
  }

  #begin(): void {
    const { promptTokens, tokensMax, body } = this.#chat;
    this.#begun = true;
    this.#record.cacheN = this.#slot.begin(promptTokens, body.cache_prompt !== false);
    this.#record.promptN = promptTokens.length - this.#record.cacheN;
    this.#slot.remaining = tokensMax;
    this.#core.requests.changed();
  }

  async #staySilent(fault: Extract<Fault, { kind: "silent" }>): Promise<void> {
    if (fault.headers) await this.#response.startEvents();
    await this.#untilCancelled();
  }

  /** Head, prompt progress, pings and the hold: all that comes before the first token. */
  async #prefill(reply: Reply): Promise<void> {
    if (this.#record.stream) {
      await this.#response.startEvents({ writeBytes: reply.writeBytes });
      if (this.#chat.body.return_progress === true) await this.#reportProgress(reply);
      for (let number = 0; number < (reply.pings ?? 0); number++) await this.#response.comment();
      await this.#response.flush();
    }
    await this.#unlessCancelled(() => reply.hold);
    this.#slot.processedTokens = this.#record.promptN;
  }

  /** The first event says what was cached, the last that the whole prompt is done. */
  async #reportProgress(reply: Reply): Promise<void> {
    const { cacheN, promptN } = this.#record;
    const count = reply.progress ?? progressEventsDefault;
    for (let number = 0; number < count; number++) {
      await this.#unlessCancelled(() => reply.beforeProgress?.(number));
      this.#slot.processedTokens = count === 1 ? 0 : Math.round(promptN * number / (count - 1));
      await this.#response.event({
        ...chunk(this.#record, { role: "assistant", content: null }),
        prompt_progress: {
          total: this.#chat.promptTokens.length,
          cache: cacheN,
          processed: cacheN + this.#slot.processedTokens,
          time_ms: Math.round(performance.now() - this.#moments.launchedMs),
        },
      });
      await this.#response.flush();
      this.#core.notices.traffic();
    }
  }

  #generate(reply: Reply): Generation {
    let calls = 0;
    return generate(reply, {
      parseCalls: this.#chat.parseCalls,
      parseThinking: this.#chat.body.reasoning_format !== "none",
      tokensMax: this.#chat.tokensMax,
      nextCallId: () => callId(this.#record.order, calls++),
    });
  }

  /** Says the pieces one by one; returns them as the message that a request without a stream is given. */
  async #speak(reply: Reply, generation: Generation): Promise<{ message: SpokenMessage; raw: string }> {
    const message: SpokenMessage = { role: "assistant", content: "" };
    let raw = "";
    let shown = 0;
    this.#speaking = true;
    this.#moments.firstTokenMs = performance.now();
    if (this.#record.stream) {
      if (this.#response.connection.gone.aborted) this.#cancel.abort();
      await this.#response.event(chunk(this.#record, { role: "assistant", content: null }));
    }
    for (const piece of generation.pieces) {
      if (piece.delta !== undefined) await this.#beforeDelta(reply, shown);
      await this.#pace(piece);
      if (this.cancelled.aborted) throw new Cancelled();
      this.#spoken.push(piece.tokens);
      this.#record.predictedN += piece.tokens.length;
      this.#slot.decodedTokens = this.#record.predictedN;
      this.#slot.remaining = this.#chat.tokensMax - this.#record.predictedN;
      raw += piece.raw;
      if (piece.delta === undefined) continue;
      shown++;
      addDelta(message, piece.delta);
      if (this.#record.stream) await this.#showDelta(reply, piece.delta);
    }
    await this.#obey(reply.fault, Infinity);
    return { message, raw };
  }

  async #beforeDelta(reply: Reply, shown: number): Promise<void> {
    await this.#obey(reply.fault, shown);
    await this.#unlessCancelled(() => reply.beforeChunk?.(shown));
  }

  async #showDelta(reply: Reply, delta: NonNullable<Piece["delta"]>): Promise<void> {
    const measured = this.#chat.body.timings_per_token === true
      ? { timings: timings(this.#record, { ...this.#moments, endedMs: performance.now() }) }
      : {};
    await this.#response.event({ ...chunk(this.#record, delta), ...measured });
    if (this.#core.tokensPerSecond > 0 || reply.beforeChunk !== undefined) await this.#response.flush();
    this.#core.notices.traffic();
  }

  async #finish(generation: Generation, said: { message: SpokenMessage; raw: string }): Promise<void> {
    const record = this.#record;
    record.finish = generation.finish;
    record.status = 200;
    this.#moments.endedMs = performance.now();
    this.#release("completed");
    this.#core.notices.traffic();
    if (!record.stream) {
      return await this.#response.json(
        200,
        completion(record, this.#chat, { ...said, moments: this.#moments }),
      );
    }
    for (const event of endChunks(record, this.#chat, this.#moments)) await this.#response.event(event);
    await this.#response.event("[DONE]");
    await this.#response.finishEvents();
  }

  async #answerStatus(fault: Extract<Fault, { kind: "status" }>): Promise<void> {
    this.#record.status = fault.status;
    this.#release("failed");
    const { body = new ServerFault(fault.status, "server_error", "scripted fault").toJson(), headers } =
      fault;
    if (typeof body !== "string") return await this.#response.json(fault.status, body, headers);
    await this.#response.body(fault.status, body, { "content-type": "text/plain", ...headers });
  }

  /** Does what a fault wants once `shown` deltas are out (Infinity: all that there are). */
  async #obey(fault: Reply["fault"], shown: number): Promise<void> {
    if (fault === undefined || fault.kind === "status" || fault.kind === "silent") return;
    if (shown < (fault.afterChunks ?? 0)) return;
    const { stream } = this.#record;
    if (stream) await this.#response.flush();
    if (fault.kind === "stall") await this.#untilCancelled();
    this.#record.status = stream ? 200 : fault.kind === "error-event" ? 500 : 0;
    this.#release("failed", fault.kind === "error-event" ? new Uint16Array() : undefined);
    if (fault.kind === "cut" && !(fault.clean && stream)) this.#response.connection.destroy();
    else {
      if (fault.kind === "error-event") await this.#tell(new ServerFault(500, "server_error", fault.message));
      else await this.#response.finishEvents();
    }
    throw new Ended();
  }

  /** The script itself threw, or its hold was refused: the client is told, so that a test can read it. */
  async #fail(fault: unknown): Promise<void> {
    const text = fault instanceof Error ? fault.message : String(fault);
    this.#record.status = this.#response.status || 500;
    this.#release("failed");
    await this.#tell(new ServerFault(500, "server_error", `practice model: ${text}`));
  }

  /** An error as the answer or, in a stream, as its last event, without `[DONE]`. */
  async #tell(error: ServerFault): Promise<void> {
    if (this.#response.status === 0) return await this.#response.fault(error);
    await this.#response.event(error.toJson());
    await this.#response.finishEvents();
  }

  /** Gives the slot back, once. A run that never began leaves it as it was. */
  #release(state: "completed" | "aborted" | "failed", remembered?: Tokens): void {
    if (this.#released) return;
    this.#released = true;
    const whole = joinTokens([this.#chat.promptTokens, joinTokens(this.#spoken).subarray(0, -1)]);
    this.#core.slots.release(this.#slot, remembered ?? (this.#begun ? whole : this.#slot.tokens));
    this.#core.requests.conclude(this.#record, state);
  }

  async #pace(piece: Piece): Promise<void> {
    const { tokensPerSecond } = this.#core;
    if (tokensPerSecond <= 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, piece.tokens.length / tokensPerSecond * 1000);
    try {
      await this.#unlessCancelled(() => promise);
    } finally {
      clearTimeout(timer);
    }
  }

  async #untilCancelled(): Promise<never> {
    await this.#unlessCancelled(() => new Promise<never>(() => {}));
    throw new Cancelled();
  }

  async #unlessCancelled<T>(work: () => T | Promise<T>): Promise<T> {
    if (this.cancelled.aborted) throw new Cancelled();
    const leaving = Promise.withResolvers<never>();
    const leave = () => leaving.reject(new Cancelled());
    this.cancelled.addEventListener("abort", leave, { once: true });
    try {
      return await Promise.race([work(), leaving.promise]);
    } finally {
      this.cancelled.removeEventListener("abort", leave);
    }
  }
}

/** 32 characters, as the server's ids are; the same requests get the same ids. */
function callId(order: number, number: number): string {
  return `call${String(order).padStart(20, "0")}${String(number).padStart(8, "0")}`;
}
