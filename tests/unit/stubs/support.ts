// What the stubs' own tests share: a plain client for the practice model, and raw TCP for the sink.
// Owns: nothing but these calls. It parses answers loosely, because here the stub is what is on trial.

import type { ModelStub } from "../../../tools/stubs/model.ts";

export interface Message {
  role: string;
  content?: string | null;
  reasoning_content?: string;
  tool_calls?: { id?: string; type?: string; function: { name: string; arguments: string } }[];
  tool_call_id?: string;
}

export interface Timings {
  cache_n: number;
  prompt_n: number;
  predicted_n: number;
}

export interface Answer {
  status: number;
  message: Message;
  finish?: string;
  timings: Timings;
  /** The server's error message, where there was an error. */
  error?: { code: number; message: string; type: string; n_prompt_tokens?: number; n_ctx?: number };
  json: Record<string, unknown>;
}

type Json = Record<string, unknown>;

export function post(
  stub: ModelStub,
  path: string,
  body: unknown,
  init: RequestInit = {},
): Promise<Response> {
  return fetch(stub.url + path, {
    method: "POST",
    body: typeof body === "string" ? body : JSON.stringify(body),
    ...init,
  });
}

/** A chat request without a stream. */
export async function ask(stub: ModelStub, body: Json): Promise<Answer> {
  const response = await post(stub, "/v1/chat/completions", body);
  const json = await response.json();
  const choice = json.choices?.[0];
  return {
    status: response.status,
    message: choice?.message,
    finish: choice?.finish_reason,
    timings: json.timings,
    error: json.error,
    json,
  };
}

export interface Event {
  choices?: { delta: Json & { tool_calls?: Json[] }; finish_reason: string | null }[];
  prompt_progress?: { total: number; cache: number; processed: number; time_ms: number };
  timings?: Timings;
  usage?: Json;
  error?: { code: number; message: string; type: string };
  __verbose?: Json;
}

/** Reads the events of a stream one by one. */
export class EventReader {
  readonly #reader: ReadableStreamDefaultReader<string>;
  #text = "";

  constructor(response: Response) {
    this.#reader = (response.body as ReadableStream<Uint8Array<ArrayBuffer>>)
      .pipeThrough(new TextDecoderStream()).getReader();
  }

  /** The next data line, or undefined at the end of the body. Throws when the connection breaks. */
  async next(): Promise<string | undefined> {
    for (;;) {
      const end = this.#text.indexOf("\n\n");
      if (end >= 0) {
        const block = this.#text.slice(0, end);
        this.#text = this.#text.slice(end + 2);
        if (block.startsWith("data: ")) return block.slice("data: ".length);
        continue;
      }
      const { value, done } = await this.#reader.read();
      if (done) return undefined;
      this.#text += value;
    }
  }
}

/** A whole stream: its events without `[DONE]`, and whether that mark was the last. */
export async function readStream(response: Response): Promise<{ events: Event[]; done: boolean }> {
  const reader = new EventReader(response);
  const events: Event[] = [];
  for (let line = await reader.next(); line !== undefined; line = await reader.next()) {
    if (line === "[DONE]") return { events, done: await reader.next() === undefined };
    events.push(JSON.parse(line));
  }
  return { events, done: false };
}

export async function askStream(stub: ModelStub, body: Json): Promise<{ events: Event[]; done: boolean }> {
  return await readStream(await post(stub, "/v1/chat/completions", { stream: true, ...body }));
}

export function tool(name: string): Json {
  return { type: "function", function: { name, description: name, parameters: { type: "object" } } };
}

export function user(content: string): Message {
  return { role: "user", content };
}

/** Bytes of a request as a client would write them. */
export function httpPost(
  body: Uint8Array<ArrayBuffer>,
  headers: string[] = ["connection: close"],
): Uint8Array {
  const head = [
    "POST /v1/chat/completions HTTP/1.1",
    "Host: sink",
    `Content-Length: ${body.byteLength}`,
    ...headers,
  ];
  const headBytes = new TextEncoder().encode(head.join("\r\n") + "\r\n\r\n");
  const whole = new Uint8Array(headBytes.byteLength + body.byteLength);
  whole.set(headBytes);
  whole.set(body, headBytes.byteLength);
  return whole;
}

/** Writes bytes on a fresh connection and reads until the peer closes. */
export async function exchange(
  port: number,
  bytes: Uint8Array,
): Promise<{ bytes: Uint8Array<ArrayBuffer>; text: string; reset: boolean }> {
  using connection = await Deno.connect({ hostname: "127.0.0.1", port });
  const parts: number[] = [];
  let reset = false;
  const reading = (async () => {
    const buffer = new Uint8Array(65536);
    try {
      for (let count = await connection.read(buffer); count !== null; count = await connection.read(buffer)) {
        for (const byte of buffer.subarray(0, count)) parts.push(byte);
      }
    } catch (fault) {
      if (!(fault instanceof Deno.errors.ConnectionReset)) throw fault;
      reset = true;
    }
  })();
  try {
    let written = 0;
    while (written < bytes.byteLength) written += await connection.write(bytes.subarray(written));
  } catch (fault) {
    if (!(fault instanceof Deno.errors.ConnectionReset || fault instanceof Deno.errors.BrokenPipe)) {
      throw fault;
    }
    reset = true;
  }
  await reading;
  const read = new Uint8Array(parts);
  return { bytes: read, text: new TextDecoder().decode(read), reset };
}
