// The inference server as a place: its address, whether it answers, how many slots it has, and whether a slot is idle.
// model.ts sends the requests; nothing here knows what a message is.

import { type Clock, DeadlineOver, delay, withDeadline } from "../../core/clock.ts";
import type { InferenceConfig } from "../../core/config/loopd_toml.ts";
import { isJsonObject, parseJson } from "../../core/json.ts";
import { drainPollMs } from "../../core/limits.ts";
import { runbookPointer } from "../../core/runbook.ts";
import { type HistoryFinding, probeHistory, promptOf } from "./history_probe.ts";
import { ModelFailure, plain } from "./model_failure.ts";
import type { TagTokens } from "./raw_grammar.ts";

export type ServerState =
  | {
    readonly kind: "ready";
    readonly totalSlots: number | undefined;
    /** Tokens that one slot holds. */
    readonly contextTokens: number | undefined;
  }
  | { readonly kind: "loading" }
  | { readonly kind: "unreachable"; readonly text: string }
  /** It takes connections and answers nothing. */
  | { readonly kind: "silent"; readonly text: string }
  | { readonly kind: "too-few-slots"; readonly text: string };

export interface InferenceServerOptions {
  readonly clock: Clock;
  readonly config: InferenceConfig;
  /** Bearer value of a protected server. */
  readonly secret?: string;
  /** The slots this process will name; a server with fewer takes them modulo, onto the live one (facts 2.6). */
  readonly slots: readonly number[];
}

/** Before a look at a slot: a cancelled stream is noticed within 20 ms, anything else needs the slow poll (facts 3c). */
const drainFirstLookMs = 25;
const loadingPollMs = 500;
/** Anything but a completion is answered within a millisecond, also during prefill (facts 3c). */
const askedMsMax = 5_000;

interface Asked {
  readonly ok: boolean;
  readonly status: number;
  /** Undefined where the answer is no JSON. */
  readonly body: unknown;
}

export class InferenceServer {
  readonly config: InferenceConfig;
  #options: InferenceServerOptions;
  #checked = false;
  #history: HistoryFinding | undefined;
  #nextPoll: Promise<unknown> | undefined;
  #lastPollMs: number | undefined;
  #closed = new AbortController();
  /** Set once the server refused a raw request: it is not tried again while this process lives. */
  #rawRefused: string | undefined;
  // No connection is used twice: a kept-alive one that the server resets makes fetch send the request again (facts/deno.md).
  #client = Deno.createHttpClient({ http2: false, poolMaxIdlePerHost: 0 });

  constructor(options: InferenceServerOptions) {
    this.#options = options;
    this.config = options.config;
  }

  /** Asks `/props`. A server that does not know the path is taken as it is. */
  async look(signal?: AbortSignal): Promise<ServerState> {
    let response;
    try {
      response = await this.#get("/props", signal);
    } catch (error) {
      signal?.throwIfAborted();
      this.#forget();
      return {
        kind: error instanceof DeadlineOver ? "silent" : "unreachable",
        text: unreachableText(this.config.url, error),
      };
    }
    if (response.status === 503) return { kind: "loading" };
    const { body } = response;
    const totalSlots = isJsonObject(body) && typeof body.total_slots === "number"
      ? body.total_slots
      : undefined;
    const needed = Math.max(...this.#options.slots) + 1;
    if (totalSlots !== undefined && totalSlots < needed) {
      return {
        kind: "too-few-slots",
        text:
          `the inference server at ${this.config.url} has ${totalSlots} slot${
            totalSlots === 1 ? "" : "s"
          }, and [slots] needs ${needed}: ` +
          `start it with -np ${needed} or more (${runbookPointer("inference-slots")})`,
      };
    }
    this.#checked = true;
    const settings = isJsonObject(body) ? body.default_generation_settings : undefined;
    const contextTokens = isJsonObject(settings) && typeof settings.n_ctx === "number"
      ? settings.n_ctx
      : undefined;
    return { kind: "ready", totalSlots, contextTokens };
  }

  /**
   * Resolves when the server can be sent requests: it is looked at before the first and again after it was gone. Loading is waited out for
   * as long as silence would be. Throws ModelFailure.
   */
  async ready(signal: AbortSignal): Promise<void> {
    if (this.#checked) return;
    const { clock } = this.#options;
    const { livenessMs, url } = this.config;
    const giveUpAt = clock.monotonic() + livenessMs;
    for (;;) {
      const state = await this.look(signal);
      switch (state.kind) {
        case "ready":
          return;
        case "silent":
          throw new ModelFailure("silent", state.text, true);
        case "unreachable":
        case "too-few-slots":
          throw new ModelFailure("model-error", state.text, true);
      }
      if (clock.monotonic() >= giveUpAt) {
        throw new ModelFailure(
          "silent",
          `the inference server at ${url} still loads after ${livenessMs} ms`,
          true,
        );
      }
      await delay(clock, loadingPollMs, signal);
    }
  }

  /** Posts one chat completion. */
  async post(body: string, signal: AbortSignal): Promise<Response> {
    await this.ready(signal);
    return await fetch(this.#url("/v1/chat/completions"), {
      method: "POST",
      headers: { "content-type": "application/json", ...this.#authorization() },
      body,
      redirect: "manual",
      signal,
      client: this.#client,
    });
  }

  /** What a request that broke off means. The server may have gone: it is looked at again before the next request. */
  failure(error: unknown): ModelFailure {
    this.#forget();
    return new ModelFailure("model-error", unreachableText(this.config.url, error), false);
  }

  /** How this server gets model messages back; probed once for each life of the server. */
  async historyFinding(signal: AbortSignal): Promise<HistoryFinding> {
    const { history } = this.config;
    if (history === "structured") {
      return { mode: history, tags: "plain-text", text: `[inference] history = "${history}"` };
    }
    if (this.#rawRefused !== undefined) {
      return {
        mode: "structured",
        tags: "plain-text",
        text: `the server refused raw history: ${this.#rawRefused}`,
      };
    }
    if (this.#history !== undefined) return this.#history;
    await this.ready(signal);
    try {
      if (this.#history === undefined) {
        const tags = await this.#tagTokens(signal);
        this.#history = history === "raw"
          ? { mode: history, tags, text: `[inference] history = "${history}"` }
          : await probeHistory(
            async (body) => promptOf(await this.#ask("/apply-template", body, signal)),
            tags,
          );
      }
      return this.#history;
    } catch {
      // A server that went away meanwhile cannot be asked; the request that follows says so to whoever waits.
      signal.throwIfAborted();
      return { mode: "structured", tags: "plain-text", text: "the server could not be asked" };
    }
  }

  /** A raw request was refused: where the owner left the choice open, history is structured from now on. True when that changed. */
  refuseRawHistory(detail: string): boolean {
    if (this.config.history !== "auto" || this.#rawRefused !== undefined) return false;
    this.#rawRefused = detail;
    return true;
  }

  /** Whether the server works on this slot; `undefined` where it does not say. Throws when it does not answer. */
  async isProcessing(slot: number): Promise<boolean | undefined> {
    const slots = await this.#pollSlots();
    const entry = Array.isArray(slots)
      ? slots.find((one) => isJsonObject(one) && one.id === slot)
      : undefined;
    return isJsonObject(entry) && typeof entry.is_processing === "boolean" ? entry.is_processing : undefined;
  }

  /**
   * Resolves when the slot is idle, or the server gone and its slots with it. Rejects with the signal's reason. A server without `/slots`
   * cannot show it: after a broken request one poll's time is waited, which is what a disconnect takes to be noticed; at start nothing is.
   */
  async drained(slot: number, after: "start" | "request", signal: AbortSignal): Promise<void> {
    for (;;) {
      let processing: boolean | undefined;
      try {
        processing = await untilAborted(this.isProcessing(slot), signal);
      } catch {
        signal.throwIfAborted();
        return;
      }
      signal.throwIfAborted();
      if (processing === undefined && after === "request") {
        await delay(this.#options.clock, drainPollMs, signal);
      }
      if (processing !== true) return;
    }
  }

  // One poll for whoever asks meanwhile, none sooner than `drainPollMs` after the last: each answer makes the server look for gone clients
  // later (facts 2.4), so asking faster would delay what is waited for.
  #pollSlots(): Promise<unknown> {
    return this.#nextPoll ??= (async () => {
      const { clock } = this.#options;
      // The first look is that of the start, and what an earlier loopd left running it cancelled long before: its own start took longer.
      const waitMs = this.#lastPollMs === undefined
        ? 0
        : Math.max(drainFirstLookMs, this.#lastPollMs + drainPollMs - clock.monotonic());
      try {
        await (waitMs > 0 ? delay(clock, waitMs, this.#closed.signal) : undefined);
      } finally {
        this.#nextPoll = undefined;
        this.#lastPollMs = clock.monotonic();
      }
      return (await this.#get("/slots", this.#closed.signal)).body;
    })();
  }

  close(): void {
    this.#closed.abort(new Error("loopd is stopping"));
    this.#client.close();
  }

  // What a server answers at once or not at all: never waited for longer than its silence would be.
  async #get(path: string, signal?: AbortSignal): Promise<Asked> {
    return await this.#asked(path, { headers: this.#authorization() }, signal);
  }

  async #asked(path: string, init: RequestInit, signal?: AbortSignal): Promise<Asked> {
    const deadlineMs = Math.min(askedMsMax, this.config.livenessMs);
    return await withDeadline(this.#options.clock, deadlineMs, signal, async (both) => {
      const response = await fetch(this.#url(path), {
        ...init,
        redirect: "manual",
        signal: both,
        client: this.#client,
      });
      const body = parseJson(await response.text())?.value;
      return { ok: response.ok, status: response.status, body };
    });
  }

  async #tagTokens(signal?: AbortSignal): Promise<TagTokens> {
    for (const content of ["<tool_call>", "</tool_call>"]) {
      const answer = await this.#ask("/tokenize", { content }, signal);
      if (!isJsonObject(answer) || !Array.isArray(answer.tokens) || answer.tokens.length !== 1) {
        return "plain-text";
      }
    }
    return "single-tokens";
  }

  // Undefined where the server has no such path or refuses what it is asked.
  async #ask(path: string, body: unknown, signal?: AbortSignal): Promise<unknown> {
    const { ok, body: answer } = await this.#asked(path, {
      method: "POST",
      headers: { "content-type": "application/json", ...this.#authorization() },
      body: JSON.stringify(body),
    }, signal);
    return ok ? answer : undefined;
  }

  // What was known of a server that went away: another one may come back in its place.
  #forget(): void {
    this.#checked = false;
    this.#history = undefined;
  }

  #url(path: string): string {
    return this.config.url.replace(/\/+$/, "") + path;
  }

  #authorization(): Record<string, string> {
    return this.#options.secret === undefined ? {} : { authorization: `Bearer ${this.#options.secret}` };
  }
}

function unreachableText(url: string, error: unknown): string {
  const cause = error instanceof Error ? plain(error.message) : "no answer";
  return `the inference server at ${url} does not answer (${cause}); ${
    runbookPointer("inference-unreachable")
  }`;
}

// The work itself goes on for whoever else waits for it: a poll is shared.
function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason);
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}
