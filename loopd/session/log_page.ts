// The newest records of a session's log, read from its end: a page of a log of any length costs what the page holds. Opens no session
// and repairs nothing; a torn end and lines that are no records are passed over.

import { sessionLineBytesMax } from "../../core/limits.ts";
import { readLinesBackwards, seqOfLine } from "../../core/read_lines.ts";
import { decodeLine } from "./log.ts";
import type { SessionRecord } from "./record.ts";

export interface LogPageOptions {
  /** Only records before this seq. */
  readonly before?: number;
  readonly recordsMax: number;
  /** Of the lines as they stand in the log; one record is always given. */
  readonly bytesMax: number;
}

export interface LogPage {
  /** Newest last. */
  readonly records: SessionRecord[];
  /** `before` for the next page back; absent where the log begins. */
  readonly before?: number;
}

/** Throws NotFound where there is no log. */
export async function readLogPage(path: string, options: LogPageOptions): Promise<LogPage> {
  const { before = Infinity, recordsMax, bytesMax } = options;
  /** Newest first. */
  const records: SessionRecord[] = [];
  let bytes = 0;
  for await (const { lines } of readLinesBackwards(path, sessionLineBytesMax)) {
    for (const line of lines) {
      if ((seqOfLine(line) ?? Infinity) >= before) continue;
      const record = decodeLine(line, path);
      if (record === undefined) continue;
      bytes += line.length;
      const isOver = bytes > bytesMax && records.length > 0;
      if (!isOver) records.push(record);
      if (isOver || records.length === recordsMax) {
        const first = records[records.length - 1].seq;
        return { records: records.reverse(), ...(first > 1 ? { before: first } : {}) };
      }
    }
  }
  return { records: records.reverse() };
}
