// What the practice model has been asked: one record per chat request, in order of arrival.
// Owns: the records with their exact body bytes, and the promises of those who wait for one. Never keeps more
// than its bounds (the oldest bodies go first), never looks at time to decide anything.

import type { ChatMessage, Tool } from "./model_template.ts";

const recordsMax = 20_000;
const keptBytesMax = 64 * 1024 * 1024;

/** `queued` waits for a slot; `running` has one; the others are final. `aborted`: the client left. */
export type RequestState = "queued" | "running" | "completed" | "aborted" | "refused" | "failed";

export interface ModelRequest {
  /** From 1, in order of arrival. */
  readonly order: number;
  readonly headers: readonly [name: string, value: string][];
  /** The body exactly as it came. */
  bytes: Uint8Array;
  /** The body parsed as JSON, or undefined when it is none. */
  body?: Record<string, unknown>;
  messages: ChatMessage[];
  tools: Tool[];
  prompt: string;
  /** The slot it ran on, or waits for; undefined while the server has not chosen one. */
  slot?: number;
  stream: boolean;
  /** It was sent to a slot that was busy. */
  collided: boolean;
  state: RequestState;
  /** HTTP status that was answered; 0 before. */
  status: number;
  cacheN: number;
  promptN: number;
  predictedN: number;
  finish?: "stop" | "tool_calls" | "length";
  readonly arrivedAtMs: number;
  endedAtMs?: number;
}

type Predicate = (request: ModelRequest) => boolean;

export class Requests {
  readonly all: ModelRequest[] = [];
  #count = 0;
  #handedOut = 0;
  #keptBytes = 0;
  #waiting = new Set<{ look: () => ModelRequest | undefined; settle: PromiseWithResolvers<ModelRequest> }>();
  #closed = false;

  add(bytes: Uint8Array, headers: readonly [string, string][]): ModelRequest {
    const request: ModelRequest = {
      order: ++this.#count,
      headers,
      bytes,
      messages: [],
      tools: [],
      prompt: "",
      stream: false,
      collided: false,
      state: "queued",
      status: 0,
      cacheN: 0,
      promptN: 0,
      predictedN: 0,
      arrivedAtMs: Date.now(),
    };
    this.all.push(request);
    this.#keptBytes += bytes.byteLength;
    while (this.all.length > recordsMax || (this.#keptBytes > keptBytesMax && this.all.length > 1)) {
      this.#keptBytes -= (this.all.shift() as ModelRequest).bytes.byteLength;
    }
    return request;
  }

  /** Says that a record changed, so that those who wait look again. */
  changed(): void {
    for (const waiting of this.#waiting) {
      const found = waiting.look();
      if (found === undefined) continue;
      this.#waiting.delete(waiting);
      waiting.settle.resolve(found);
    }
  }

  /** Writes how a request ended. Its status and counts stand in the record already. */
  conclude(request: ModelRequest, state: RequestState): void {
    request.state = state;
    request.endedAtMs = Date.now();
    this.changed();
  }

  /** The earliest request that this method has not given out yet; waits for it. */
  next(): Promise<ModelRequest> {
    return this.#wait(() => {
      const found = this.all.find((request) => request.order > this.#handedOut);
      if (found !== undefined) this.#handedOut = found.order;
      return found;
    });
  }

  /** The earliest request, past ones included, for which `predicate` is or becomes true. */
  waitFor(predicate: Predicate): Promise<ModelRequest> {
    return this.#wait(() => this.all.find(predicate));
  }

  /** Refuses all who still wait. */
  close(): void {
    this.#closed = true;
    for (const { settle } of this.#waiting) settle.reject(closedError());
    this.#waiting.clear();
  }

  #wait(look: () => ModelRequest | undefined): Promise<ModelRequest> {
    const found = look();
    if (found !== undefined) return Promise.resolve(found);
    const settle = Promise.withResolvers<ModelRequest>();
    // Nobody has to be listening when the stub closes; whoever awaits the promise still gets the error.
    settle.promise.catch(() => {});
    if (this.#closed) settle.reject(closedError());
    else this.#waiting.add({ look, settle });
    return settle.promise;
  }
}

function closedError(): Error {
  return new Error("the model stub was closed before such a request came");
}
