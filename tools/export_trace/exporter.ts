// Sends the lines of `trace/` to one collector, oldest first, and remembers how far it came. A line is sent again where its answer did not
// come: spans have ids, so a collector knows it. Reads spans and writes one file; what it may reach is its one host.

import { join } from "node:path";
import { parseArgs } from "node:util";
import { z } from "zod";
import { describeError, exitCodes, UsageError } from "../../core/errors.ts";
import { formatVersions, newerFormatFault } from "../../core/format_versions.ts";
import { homePaths } from "../../core/home.ts";
import { parseJsonObject } from "../../core/json.ts";
import { loadSecret } from "../../core/secrets.ts";
import { printFaults } from "../launch/program.ts";
import { type Collector, httpCollector } from "./collector.ts";

/** A line of ours is some 150 KB at most. */
const lineBytesMax = 4 * 1_048_576;
export const progressName = "exported.json";

const progressSchema = z.strictObject({
  v: z.literal(formatVersions.traceExport),
  to: z.string(),
  /** Number of the file, and the byte in it up to which everything was sent. */
  file: z.int().min(1),
  offset: z.int().min(0),
});
type Progress = z.infer<typeof progressSchema>;

export interface Exported {
  readonly lines: number;
  readonly spans: number;
  /** Lines that the collector will never take. */
  readonly refused: number;
  /** Bytes of torn lines. */
  readonly skippedBytes: number;
  /** Everything that was there is sent. */
  readonly done: boolean;
  /** Why not. */
  readonly text?: string;
}

/** Throws UsageError where what was remembered is of a newer format. */
export async function exportTrace(directory: string, to: string, collector: Collector): Promise<Exported> {
  const counts = { lines: 0, spans: 0, refused: 0, skippedBytes: 0 };
  const numbers = await fileNumbers(directory);
  const known = await loadProgress(directory);
  // Numbers that begin anew mean that the owner cleared the directory.
  const from = known?.to === to && known.file <= (numbers.at(-1) ?? 0) ? known : undefined;
  for (const number of numbers) {
    if (from !== undefined && number < from.file) continue;
    const start = from?.file === number ? from.offset : 0;
    const isNewest = number === numbers.at(-1);
    for await (const { bytes, end, torn } of linesOf(pathOf(directory, number), start)) {
      // The newest file's last line may still be on its way; behind an older one nothing comes.
      if (torn) {
        if (!isNewest) counts.skippedBytes += bytes.length;
        continue;
      }
      const answer = await collector.send(bytes);
      if (answer.kind === "later") return { ...counts, done: false, text: answer.text };
      if (answer.kind === "never") counts.refused++;
      else {
        counts.lines++;
        counts.spans += spansIn(bytes);
      }
      await saveProgress(directory, { v: formatVersions.traceExport, to, file: number, offset: end });
    }
  }
  return { ...counts, done: true };
}

function pathOf(directory: string, number: number): string {
  return join(directory, `trace-${String(number).padStart(6, "0")}.jsonl`);
}

async function fileNumbers(directory: string): Promise<number[]> {
  const numbers: number[] = [];
  try {
    for await (const { name, isFile } of Deno.readDir(directory)) {
      const match = /^trace-(\d{6,})\.jsonl$/.exec(name);
      if (match !== null && isFile) numbers.push(Number(match[1]));
    }
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
  return numbers.sort((a, b) => a - b);
}

interface TraceLine {
  /** Without its newline. */
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Where the next one begins. */
  readonly end: number;
  /** It has no end, or is longer than any of ours. */
  readonly torn: boolean;
}

/** Nothing where loopd removed the file meanwhile. */
async function* linesOf(path: string, from: number): AsyncGenerator<TraceLine> {
  let file: Deno.FsFile;
  try {
    file = await Deno.open(path, { read: true });
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return;
    throw error;
  }
  using opened = file;
  const start = from <= (await opened.stat()).size ? from : 0;
  await opened.seek(start, Deno.SeekMode.Start);
  let rest = new Uint8Array(0);
  let at = start;
  for (const buffer = new Uint8Array(65_536);;) {
    const count = await opened.read(buffer);
    if (count === null) break;
    const held = new Uint8Array(rest.length + count);
    held.set(rest);
    held.set(buffer.subarray(0, count), rest.length);
    let begin = 0;
    for (let end = held.indexOf(0x0a); end !== -1; end = held.indexOf(0x0a, begin)) {
      at += end + 1 - begin;
      yield { bytes: held.slice(begin, end), end: at, torn: end - begin > lineBytesMax };
      begin = end + 1;
    }
    rest = held.slice(begin);
    if (rest.length > lineBytesMax) break;
  }
  if (rest.length > 0) yield { bytes: rest, end: at + rest.length, torn: true };
}

function spansIn(line: Uint8Array): number {
  return new TextDecoder().decode(line).split('"spanId":').length - 1;
}

async function loadProgress(directory: string): Promise<Progress | undefined> {
  const path = join(directory, progressName);
  let text: string;
  try {
    text = await Deno.readTextFile(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
  const value = parseJsonObject(text);
  const newer = newerFormatFault(path, value?.v, formatVersions.traceExport);
  if (newer !== undefined) throw new UsageError([newer]);
  // What cannot be read is as good as nothing: everything is sent again, and a collector knows it.
  const parsed = progressSchema.safeParse(value);
  return parsed.success ? parsed.data : undefined;
}

async function saveProgress(directory: string, progress: Progress): Promise<void> {
  const path = join(directory, progressName);
  await Deno.writeTextFile(`${path}.next`, `${JSON.stringify(progress)}\n`, { mode: 0o600 });
  await Deno.rename(`${path}.next`, path);
}

async function main(args: string[]): Promise<number> {
  const { values } = parseArgs({
    args,
    options: {
      home: { type: "string" },
      to: { type: "string" },
      secret: { type: "string" },
      json: { type: "boolean" },
    },
  });
  const paths = homePaths(values.home ?? "");
  const to = values.to ?? "";
  // The launcher checked the directories; this may look at the one file.
  const secret = values.secret === undefined
    ? undefined
    : await loadSecret(join(paths.secrets, values.secret), { checkDirectories: [] });
  if (secret !== undefined && "fault" in secret) throw new UsageError([secret.fault]);
  const exported = await exportTrace(paths.trace, to, httpCollector(to, secret?.value));
  if (values.json) console.log(JSON.stringify(exported));
  else {
    const { lines, spans, refused, skippedBytes } = exported;
    console.log(`sent ${spans} spans in ${lines} requests to ${new URL(to).host}`);
    if (refused > 0) {
      console.error(`export-trace: the collector refused ${refused} requests for good; they are passed over`);
    }
    if (skippedBytes > 0) console.error(`export-trace: ${skippedBytes} bytes of torn lines were passed over`);
  }
  if (!exported.done) {
    console.error(`export-trace: ${exported.text}; what was sent is remembered, run it again later`);
  }
  return exported.done ? exitCodes.done : exitCodes.failed;
}

if (import.meta.main) {
  try {
    Deno.exit(await main(Deno.args));
  } catch (error) {
    if (error instanceof UsageError) {
      printFaults(error.faults);
      Deno.exit(exitCodes.usage);
    }
    console.error(`export-trace: ${describeError(error)}`);
    Deno.exit(exitCodes.failed);
  }
}
