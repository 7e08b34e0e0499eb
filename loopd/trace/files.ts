// `trace/trace-NNNNNN.jsonl`: one OTLP ExportTraceServiceRequest a line, in its JSON form. Files are bounded in size and number.
// Nobody waits for it: spans are taken into a bounded buffer and written in the background; what does not fit is counted and said in the
// next line, and a disk that does not take them is told once and costs spans, never a turn.

import { join } from "node:path";
import type { Clock } from "../../core/clock.ts";
import { describeError } from "../../core/errors.ts";
import { formatVersions } from "../../core/format_versions.ts";
import { traceFileBytesMax, traceFilesMax } from "../../core/limits.ts";
import type { Span } from "./tracer.ts";

export interface TraceFilesOptions {
  readonly directory: string;
  readonly clock: Clock;
  readonly onFailure: (text: string) => void;
  readonly fileBytesMax?: number;
  readonly filesMax?: number;
}

/** Spans in memory; more are dropped. A turn makes about four for each tool call. */
const waitingMax = 4_096;
/** Spans in one line. */
const lineSpansMax = 256;
const flushAfterMs = 1_000;

export class TraceFiles {
  readonly #options: TraceFilesOptions;
  #waiting: Span[] = [];
  #dropped = 0;
  #cancelTimer: (() => void) | undefined;
  #writing: Promise<void> | undefined;
  #file: { readonly number: number; readonly handle: Deno.FsFile; bytes: number } | undefined;
  #failed = false;

  constructor(options: TraceFilesOptions) {
    this.#options = options;
  }

  /** Takes a span, at once. */
  readonly record = (span: Span): void => {
    if (this.#waiting.length >= waitingMax) {
      this.#dropped++;
      return;
    }
    this.#waiting.push(span);
    if (this.#waiting.length >= lineSpansMax) this.#flushSoon();
    else {
      this.#cancelTimer ??= this.#options.clock.schedule(flushAfterMs, () => {
        this.#cancelTimer = undefined;
        this.#flushSoon();
      });
    }
  };

  /** Writes what waits. */
  async close(): Promise<void> {
    this.#cancelTimer?.();
    await this.#writing;
    this.#flushSoon();
    await this.#writing;
    this.#file?.handle.close();
    this.#file = undefined;
  }

  #flushSoon(): void {
    this.#writing ??= this.#flush().finally(() => this.#writing = undefined);
  }

  async #flush(): Promise<void> {
    while (this.#waiting.length > 0) {
      const spans = this.#waiting.splice(0, lineSpansMax);
      try {
        await this.#write(new TextEncoder().encode(`${encodeLine(spans, this.#dropped)}\n`));
      } catch (error) {
        this.#dropped += spans.length + this.#waiting.splice(0).length;
        this.#file?.handle.close();
        this.#file = undefined;
        if (this.#failed) return;
        this.#failed = true;
        this.#options.onFailure(`spans are not written: ${describeError(error)}`);
      }
    }
  }

  async #write(line: Uint8Array): Promise<void> {
    const { fileBytesMax = traceFileBytesMax } = this.#options;
    if (this.#file !== undefined && this.#file.bytes + line.length > fileBytesMax) {
      this.#file.handle.close();
      this.#file = undefined;
    }
    this.#file ??= await this.#open(line.length);
    // Not durable: a span that a power cut takes is no loss.
    for (let at = 0; at < line.length;) at += await this.#file.handle.write(line.subarray(at));
    this.#file.bytes += line.length;
  }

  /** The newest file where a line more fits into it, else a new one; the oldest give way. */
  async #open(lineBytes: number) {
    const { directory, fileBytesMax = traceFileBytesMax, filesMax = traceFilesMax } = this.#options;
    await Deno.mkdir(directory, { recursive: true, mode: 0o700 });
    const numbers = await traceFileNumbers(directory);
    const last = numbers.at(-1);
    if (last !== undefined) {
      const handle = await Deno.open(traceFilePath(directory, last), { read: true, append: true });
      const { size } = await handle.stat();
      if (size + lineBytes <= fileBytesMax && await endsInLine(handle, size)) {
        return { number: last, handle, bytes: size };
      }
      handle.close();
    }
    const number = (last ?? 0) + 1;
    for (const old of numbers.slice(0, Math.max(0, numbers.length - filesMax + 1))) {
      await Deno.remove(traceFilePath(directory, old));
    }
    const path = traceFilePath(directory, number);
    return {
      number,
      handle: await Deno.open(path, { append: true, createNew: true, mode: 0o600 }),
      bytes: 0,
    };
  }
}

export function traceFilePath(directory: string, number: number): string {
  return join(directory, `trace-${String(number).padStart(6, "0")}.jsonl`);
}

async function traceFileNumbers(directory: string): Promise<number[]> {
  const numbers: number[] = [];
  for await (const { name } of Deno.readDir(directory)) {
    const match = /^trace-(\d{6,})\.jsonl$/.exec(name);
    if (match !== null) numbers.push(Number(match[1]));
  }
  return numbers.sort((a, b) => a - b);
}

/** A process that was killed may have left half a line; nothing is written behind one. */
async function endsInLine(file: Deno.FsFile, size: number): Promise<boolean> {
  if (size === 0) return true;
  await file.seek(size - 1, Deno.SeekMode.Start);
  const last = new Uint8Array(1);
  await file.read(last);
  return last[0] === 0x0a;
}

const kindInternal = 1;
const kindClient = 3;
const statusUnset = 0;
const statusError = 2;

/** ExportTraceServiceRequest in OTLP's JSON: ids in hex, 64-bit numbers as text. */
function encodeLine(spans: readonly Span[], dropped: number): string {
  return JSON.stringify({
    resourceSpans: [{
      resource: { attributes: attributesOf({ "service.name": "boxmaker", "service.instance.id": "loopd" }) },
      scopeSpans: [{
        scope: {
          name: "boxmaker/loopd",
          version: String(formatVersions.trace),
          attributes: attributesOf({ "boxmaker.dropped_spans": dropped }),
        },
        spans: spans.map((span) => ({
          traceId: span.traceId,
          spanId: span.spanId,
          ...(span.parentSpanId === undefined ? {} : { parentSpanId: span.parentSpanId }),
          name: span.name,
          kind: span.isClient ? kindClient : kindInternal,
          startTimeUnixNano: nanoseconds(span.startMs),
          endTimeUnixNano: nanoseconds(span.endMs),
          attributes: attributesOf(
            Object.fromEntries(
              Object.entries(span.attributes).map(([key, value]) => [`boxmaker.${key}`, value]),
            ),
          ),
          status: { code: span.failed ? statusError : statusUnset },
        })),
      }],
    }],
  });
}

function attributesOf(attributes: Span["attributes"]): { key: string; value: unknown }[] {
  return Object.entries(attributes).filter(([, value]) => value !== undefined).map(([key, value]) => ({
    key,
    value: typeof value === "string"
      ? { stringValue: value }
      : typeof value === "boolean"
      ? { boolValue: value }
      : { intValue: String(Math.round(value ?? 0)) },
  }));
}

function nanoseconds(ms: number): string {
  return String(BigInt(Math.round(ms * 1_000)) * 1_000n);
}
