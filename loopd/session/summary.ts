// What a list shows of a session, folded from its log without opening the session: no message is rendered, nothing is repaired. Reads on
// from where it stopped, a bounded piece at a time, so that a list of thousands costs what grew.

import { joinLabels, type Label, publicTrusted } from "../../core/labels.ts";
import { sessionLineBytesMax } from "../../core/limits.ts";
import type { Usage } from "../../core/protocol/loop.ts";
import { readFrom } from "../../core/read_lines.ts";
import { decodeLine } from "./log.ts";
import type { SessionRecord, TurnEnd } from "./record.ts";
import { addUsage, noUsage } from "./session.ts";

/** Beginning of the first text, for a list. */
export const titleCharactersMax = 120;
/** What stands before the task of a child or a job. */
const timeLinePattern = /^\[\w{3} \d{4}-\d{2}-\d{2} \d{2}:\d{2}, [^\]\n]{1,64}\]\n/;
/** The least that is read of a log at once: most sessions' logs, whole. */
const readBytesMin = 65_536;

export class SessionSummary {
  label: Label = publicTrusted;
  turns = 0;
  usage: Usage = noUsage();
  lastEnd: TurnEnd | undefined;
  /** Of the first text that the session was given. */
  title = "";
  /** True until the log's first epoch: the session never began. */
  empty = true;
  #path: string;
  #inode: number | null = null;
  #readBytes = 0;
  /** Size of the log when the summary stood for all of it. */
  #wholeBytes: number | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  /** Whether the summary stands for the whole log as it is now, told without opening it. Throws NotFound. */
  async isWhole(): Promise<boolean> {
    const { size, ino } = await Deno.stat(this.#path);
    return ino === this.#inode && size === this.#wholeBytes;
  }

  /**
   * Reads on, at most `bytesMax` or one line where that is longer. Returns the bytes read, and whether the summary stands for the whole
   * log. Throws NotFound.
   */
  async readOn(bytesMax: number): Promise<{ bytes: number; whole: boolean }> {
    using file = await Deno.open(this.#path, { read: true });
    const { size, ino } = await file.stat();
    // Another log took its place, or its torn end was cut off.
    if (ino !== this.#inode || size < this.#readBytes) this.#restart(ino);
    const from = this.#readBytes;
    if (size === from) return this.#read(0, size);
    if (bytesMax <= 0) return { bytes: 0, whole: false };
    for (let length = Math.max(bytesMax, readBytesMin);; length *= 2) {
      const read = await readFrom(file, from, Math.min(length, size - from));
      const lines = read.subarray(0, read.lastIndexOf(0x0a) + 1);
      const atEnd = from + read.length >= size;
      // A torn end, or a line that no log of ours holds: what stands before it is all that there is to know.
      if (lines.length === 0 && !atEnd && length < sessionLineBytesMax) continue;
      this.#foldLines(lines);
      return this.#read(read.length, atEnd || lines.length === 0 ? size : undefined);
    }
  }

  #read(bytes: number, wholeBytes: number | undefined): { bytes: number; whole: boolean } {
    this.#wholeBytes = wholeBytes;
    return { bytes, whole: wholeBytes !== undefined };
  }

  #restart(inode: number | null): void {
    Object.assign(this, new SessionSummary(this.#path));
    this.#readBytes = 0;
    this.#wholeBytes = undefined;
    this.#inode = inode;
  }

  #foldLines(lines: Uint8Array): void {
    for (let at = 0; at < lines.length;) {
      const end = lines.indexOf(0x0a, at);
      const record = decodeLine(lines.subarray(at, end), this.#path);
      if (record !== undefined) this.#fold(record);
      at = end + 1;
    }
    this.#readBytes += lines.length;
  }

  #fold(record: SessionRecord): void {
    switch (record.kind) {
      case "open":
        this.label = record.label;
        return;
      case "epoch":
        this.empty = false;
        return;
      case "user":
        this.turns = record.turn;
        this.lastEnd = undefined;
        if (this.title === "") {
          this.title = record.text.replace(timeLinePattern, "").slice(0, titleCharactersMax);
        }
        return;
      case "assistant":
        this.usage = addUsage(this.usage, record.timings);
        return;
      case "result":
        this.label = joinLabels(this.label, record.label);
        return;
      case "end":
        this.lastEnd = record.status;
        return;
    }
  }
}
