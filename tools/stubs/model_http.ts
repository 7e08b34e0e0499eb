// How the practice model answers on a connection: JSON with a length, or server-sent events in chunks.
// Owns: status lines, headers, chunk framing, keep-alive. Never chooses what is said, and never waits for
// anything but the socket.

import { concat, type Connection, utf8 } from "./wire.ts";
import type { ServerFault } from "./model_template.ts";

const flushBytes = 16 * 1024;

const statusTexts: Record<number, string> = {
  200: "OK",
  400: "Bad Request",
  401: "Unauthorized",
  404: "Not Found",
  413: "Payload Too Large",
  429: "Too Many Requests",
  500: "Internal Server Error",
  501: "Not Implemented",
  503: "Service Unavailable",
};

export class HttpResponse {
  /** Set once a head is out. */
  status = 0;
  #pending = "";
  #writeBytes?: number;

  constructor(readonly connection: Connection, readonly keepAlive: boolean) {}

  async json(status: number, value: unknown, headers: Record<string, string> = {}): Promise<void> {
    const type = { "content-type": "application/json; charset=utf-8" };
    await this.body(status, JSON.stringify(value), { ...type, ...headers });
  }

  async fault(fault: ServerFault): Promise<void> {
    await this.json(fault.status, fault.toJson());
  }

  async body(status: number, text: string, headers: Record<string, string>): Promise<void> {
    this.status = status;
    const bytes = utf8(text);
    const head = this.#head({ ...headers, "content-length": String(bytes.byteLength) });
    await this.connection.write(concat([utf8(head), bytes]));
  }

  /** Sends the head of an event stream. */
  async startEvents(options: { writeBytes?: number } = {}): Promise<void> {
    this.status = 200;
    this.#writeBytes = options.writeBytes;
    await this.connection.write(
      this.#head({ "content-type": "text/event-stream", "transfer-encoding": "chunked" }),
    );
  }

  /** Adds an event; it is sent with the next flush, or now when much has gathered. */
  async event(data: unknown): Promise<void> {
    await this.#add(`data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`);
  }

  async comment(): Promise<void> {
    await this.#add(":\n\n");
  }

  async flush(): Promise<void> {
    for (const chunk of this.#takeChunks()) await this.connection.write(chunk);
  }

  async finishEvents(): Promise<void> {
    const chunks = this.#takeChunks();
    const last = chunks.pop() ?? new Uint8Array();
    for (const chunk of chunks) await this.connection.write(chunk);
    await this.connection.write(concat([last, utf8("0\r\n\r\n")]));
  }

  /** What is pending as one chunk, or as several of the size that was asked for: each is one write. */
  #takeChunks(): Uint8Array<ArrayBuffer>[] {
    const bytes = utf8(this.#pending);
    this.#pending = "";
    const size = this.#writeBytes ?? bytes.byteLength;
    const chunks: Uint8Array<ArrayBuffer>[] = [];
    for (let at = 0; at < bytes.byteLength; at += size) {
      const part = bytes.subarray(at, at + size);
      chunks.push(concat([utf8(`${part.byteLength.toString(16)}\r\n`), part, utf8("\r\n")]));
    }
    return chunks;
  }

  async #add(text: string): Promise<void> {
    this.#pending += text;
    if (this.#pending.length > flushBytes) await this.flush();
  }

  #head(headers: Record<string, string>): string {
    const all = {
      ...headers,
      ...(this.keepAlive
        ? { connection: "keep-alive", "keep-alive": "timeout=5, max=100" }
        : { connection: "close" }),
    };
    const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
    return `HTTP/1.1 ${this.status} ${statusTexts[this.status] ?? "Status"}\r\n${lines.join("")}\r\n`;
  }
}
