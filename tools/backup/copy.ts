// Copies one file of a home that may be written to meanwhile, hashing what it copies. Knows bytes and lines; which file wants which way,
// and in which order, is backup.ts's business.

import { createHash } from "node:crypto";
import { delay, systemClock } from "../../core/clock.ts";

export interface Copied {
  readonly bytes: number;
  readonly sha256: string;
}

/** Files copied at once: waiting for the disk is most of the work, and waits are shared. */
export const copiesMax = 32;

/** Runs `work` for each item, at most `atOnce` at a time, in their order of beginning. Rejects with the first failure, when all that began has ended. */
export async function forEach<T>(
  items: Iterable<T>,
  work: (item: T) => Promise<void>,
  atOnce: number = copiesMax,
): Promise<void> {
  const queue = [...items].values();
  let failed = false;
  const settled = await Promise.allSettled(Array.from({ length: atOnce }, async () => {
    for (const item of queue) {
      if (failed) return;
      await work(item).catch((error) => {
        failed = true;
        throw error;
      });
    }
  }));
  const failure = settled.find((one) => one.status === "rejected");
  if (failure !== undefined) throw failure.reason;
}

const blockBytes = 1_048_576;
/** A file that is replaced or appended to while it is read is read again. */
const stableTriesMax = 20;
const stablePauseMs = 20;

/** The whole lines that stand in an append-only file now: what is appended meanwhile, and a line that has no end, are left out. */
export async function copyLines(from: string, to: string): Promise<Copied> {
  using source = await Deno.open(from, { read: true });
  return await copyBytes(source, to, await endOfLastLine(source, (await source.stat()).size));
}

/** A file that is small and changed as a whole, or by a write of its own: copied again where it changed under the copy. */
export async function copyStable(from: string, to: string): Promise<Copied> {
  for (let tries = 1;; tries++) {
    using source = await Deno.open(from, { read: true });
    const before = await source.stat();
    const copied = await copyBytes(source, to, before.size);
    const after = await Deno.stat(from);
    const same = after.ino === before.ino && after.size === before.size && copied.bytes === before.size &&
      after.mtime?.getTime() === before.mtime?.getTime();
    if (same) return copied;
    if (tries === stableTriesMax) throw new Error(`${from} changed ${tries} times while it was copied`);
    await Deno.remove(to);
    await delay(systemClock, stablePauseMs);
  }
}

/** All bytes of a file that nobody writes to. */
export async function copyWhole(from: string, to: string): Promise<Copied> {
  using source = await Deno.open(from, { read: true });
  return await copyBytes(source, to, (await source.stat()).size);
}

/** Writes bytes that were made here, durable and hashed as a copy is. */
export async function writeNew(to: string, bytes: Uint8Array): Promise<Copied> {
  using target = await Deno.open(to, { write: true, createNew: true, mode: 0o600 });
  await writeAll(target, bytes);
  await target.sync();
  return { bytes: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") };
}

async function copyBytes(source: Deno.FsFile, to: string, length: number): Promise<Copied> {
  using target = await Deno.open(to, { write: true, createNew: true, mode: 0o600 });
  const hash = createHash("sha256");
  const buffer = new Uint8Array(Math.min(blockBytes, Math.max(1, length)));
  await source.seek(0, Deno.SeekMode.Start);
  let bytes = 0;
  while (bytes < length) {
    const count = await source.read(buffer.subarray(0, Math.min(buffer.length, length - bytes)));
    if (count === null) break;
    const block = buffer.subarray(0, count);
    hash.update(block);
    await writeAll(target, block);
    bytes += count;
  }
  await target.sync();
  return { bytes, sha256: hash.digest("hex") };
}

async function writeAll(target: Deno.FsFile, bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length;) at += await target.write(bytes.subarray(at));
}

async function endOfLastLine(source: Deno.FsFile, size: number): Promise<number> {
  const buffer = new Uint8Array(Math.min(blockBytes, Math.max(1, size)));
  for (let end = size; end > 0;) {
    const from = Math.max(0, end - buffer.length);
    await source.seek(from, Deno.SeekMode.Start);
    let read = 0;
    while (read < end - from) {
      const count = await source.read(buffer.subarray(read, end - from));
      if (count === null) break;
      read += count;
    }
    const newline = buffer.subarray(0, read).lastIndexOf(0x0a);
    if (newline !== -1) return from + newline + 1;
    end = from;
  }
  return 0;
}
