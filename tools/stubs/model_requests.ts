// What the practice model has been asked: one record per chat request, in order of arrival.
// Owns: the records with their exact body bytes. Never keeps more than its bounds (the oldest records go first),
// never decides anything.

import { Arrivals } from "./arrivals.ts";
import type { ChatMessage, Tool } from "./model_template.ts";

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
  /** Milliseconds since 1970, with their fraction; stamped when the whole body is here, before it is read. */
  readonly arrivedAtMs: number;
  endedAtMs?: number;
}

export class Requests extends Arrivals<ModelRequest> {
  #count = 0;

  constructor() {
    super("the model stub");
  }

  record(bytes: Uint8Array, headers: readonly [string, string][]): ModelRequest {
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
      arrivedAtMs: performance.timeOrigin + performance.now(),
    };
    this.add(request);
    this.#forgetOldBodies();
    return request;
  }

  /** From the newest on: once the bound is passed, older records keep their numbers only. */
  #forgetOldBodies(): void {
    let bytes = 0;
    for (const request of this.all.toReversed()) {
      bytes += request.bytes.byteLength;
      if (bytes <= keptBytesMax) continue;
      Object.assign(request, {
        bytes: new Uint8Array(),
        body: undefined,
        messages: [],
        tools: [],
        prompt: "",
      });
    }
  }

  /** Writes how a request ended. Its status and counts stand in the record already. */
  conclude(request: ModelRequest, state: RequestState): void {
    request.state = state;
    request.endedAtMs = performance.timeOrigin + performance.now();
    this.changed();
  }
}
