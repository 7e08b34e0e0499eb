// The practice model's slots: which slot a request runs on, who waits for it, which tokens it remembers.
// Owns: `id_slot` by modulo, one FIFO per slot, the longest common prefix, the count of collisions (a request
// sent to a slot that was busy: a careful client never does that). Never writes to a socket, and never knows
// what the model says.

import { commonPrefixLength, type Tokens } from "./model_tokens.ts";

const waitingMax = 1024;
const similarityMin = 0.1;

/** One slot. While `busy`, its running request alone writes the counters. */
export class Slot {
  tokens: Tokens = new Uint16Array();
  used = false;
  busy = false;
  task = -1;
  lastUsed = 0;
  promptTokens = 0;
  cachedTokens = 0;
  processedTokens = 0;
  decodedTokens = 0;
  remaining = -1;

  constructor(readonly id: number) {}

  /** Starts the prompt: how many of its tokens are already here. At least the last one is computed again. */
  begin(prompt: Tokens, useCache: boolean): number {
    const cached = useCache ? Math.min(commonPrefixLength(this.tokens, prompt), prompt.length - 1) : 0;
    this.used = true;
    this.promptTokens = prompt.length;
    this.cachedTokens = cached;
    this.processedTokens = 0;
    this.decodedTokens = 0;
    return cached;
  }

  /** The entry of `GET /slots`. */
  toJson(nCtx: number): Record<string, unknown> {
    const tokens = this.busy ? this.promptTokens + this.decodedTokens : this.tokens.length;
    return {
      id: this.id,
      n_ctx: nCtx,
      speculative: false,
      is_processing: this.busy,
      ...(this.task >= 0 ? { id_task: this.task } : {}),
      ...(this.used
        ? {
          n_prompt_tokens: tokens,
          n_prompt_tokens_processed: this.busy ? this.processedTokens : 0,
          n_prompt_tokens_cache: this.busy ? this.cachedTokens : 0,
        }
        : {}),
      params: {},
      next_token: [{
        has_next_token: this.busy,
        has_new_line: false,
        n_remain: this.busy ? this.remaining : -1,
        n_decoded: this.busy ? this.decodedTokens : 0,
      }],
    };
  }
}

interface Waiting {
  slot: Slot | undefined;
  start: (slot: Slot | undefined) => void;
}

export class Slots {
  readonly all: readonly Slot[];
  collisions = 0;
  #waiting: Waiting[] = [];
  #task = 0;
  #unifiedCache: boolean;

  constructor(options: { totalSlots: number; unifiedCache: boolean }) {
    this.all = Array.from({ length: options.totalSlots }, (_, id) => new Slot(id));
    this.#unifiedCache = options.unifiedCache;
  }

  /** The slot that `id_slot` names, by modulo; undefined when the server chooses. */
  pinned(idSlot: unknown): Slot | undefined {
    if (typeof idSlot !== "number" || (idSlot | 0) === -1) return undefined;
    return this.all[(idSlot >>> 0) % this.all.length];
  }

  /** True when a request for this slot would have to wait. */
  wouldWait(pinned: Slot | undefined): boolean {
    return pinned === undefined ? this.all.every((slot) => slot.busy) : pinned.busy;
  }

  /** Takes a slot, waiting in arrival order; undefined when `cancelled` fires first. */
  take(pinned: Slot | undefined, prompt: Tokens, cancelled: AbortSignal): Promise<Slot | undefined> {
    if (!this.wouldWait(pinned)) return Promise.resolve(this.#occupy(pinned ?? this.#choose(prompt)));
    if (pinned !== undefined) this.collisions++;
    if (this.#waiting.length >= waitingMax) {
      throw new Error(`more than ${waitingMax} requests wait for a slot`);
    }
    return new Promise((resolve) => {
      const waiting: Waiting = {
        slot: pinned,
        start: (slot) => {
          cancelled.removeEventListener("abort", forget);
          resolve(slot);
        },
      };
      const forget = () => {
        this.#waiting = this.#waiting.filter((each) => each !== waiting);
        resolve(undefined);
      };
      cancelled.addEventListener("abort", forget, { once: true });
      this.#waiting.push(waiting);
    });
  }

  /** Gives the slot back, remembering `tokens`, and starts whoever waits for it. */
  release(slot: Slot, tokens: Tokens): void {
    slot.tokens = tokens;
    slot.busy = false;
    slot.lastUsed = this.#task;
    const at = this.#waiting.findIndex((each) => each.slot === slot || each.slot === undefined);
    if (at < 0) return;
    const [next] = this.#waiting.splice(at, 1);
    next.start(this.#occupy(slot));
  }

  #occupy(slot: Slot): Slot {
    slot.busy = true;
    slot.task = this.#task++;
    if (this.#unifiedCache) {
      for (const other of this.all) {
        if (other !== slot && !other.busy) other.tokens = new Uint16Array();
      }
    }
    return slot;
  }

  /** Without `id_slot`: the idle slot with a similar prefix, else the one used longest ago. */
  #choose(prompt: Tokens): Slot {
    const idle = this.all.filter((slot) => !slot.busy);
    const similar = idle.map((slot) => ({
      slot,
      share: commonPrefixLength(slot.tokens, prompt) / prompt.length,
    }))
      .filter(({ share }) => share > similarityMin)
      .sort((left, right) => right.share - left.share);
    if (similar.length > 0) return similar[0].slot;
    return idle.toSorted((left, right) => left.lastUsed - right.lastUsed || left.id - right.id)[0];
  }
}
