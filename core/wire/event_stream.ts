// Server-sent events, both ways: the encoder our sockets write with, and an incremental parser for what a peer streams.
// The parser keeps at most one event in memory and refuses a longer one.

import { streamEventBytesMax } from "../limits.ts";

export interface ServerSentEvent {
  /** `message` where the stream names none. */
  readonly event: string;
  readonly data: string;
}

/** One event as its bytes on the wire. */
export function encodeEvent(event: string, data: unknown): string {
  return `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
}

export interface EventStreamParser {
  /** The events that `chunk` completes. Throws RangeError past `streamEventBytesMax` in one event. */
  push(chunk: Uint8Array): ServerSentEvent[];
  /** True when every byte so far belonged to a finished event or comment. */
  readonly atBoundary: boolean;
}

/** Lines end in LF or CRLF; comments and unknown fields are passed over, as the format wants. */
export function eventStreamParser(): EventStreamParser {
  const decoder = new TextDecoder();
  let pending = "";
  let event = "message";
  let data: string[] = [];
  let dataLength = 0;
  return {
    get atBoundary() {
      return pending === "" && data.length === 0;
    },
    push(chunk) {
      pending += decoder.decode(chunk, { stream: true });
      const events: ServerSentEvent[] = [];
      let from = 0;
      for (let end = pending.indexOf("\n", from); end !== -1; end = pending.indexOf("\n", from)) {
        const line = pending.charCodeAt(end - 1) === 0x0d && end > from
          ? pending.slice(from, end - 1)
          : pending.slice(from, end);
        from = end + 1;
        if (line === "") {
          if (data.length > 0) events.push({ event, data: data.length === 1 ? data[0] : data.join("\n") });
          event = "message";
          data = [];
          dataLength = 0;
        } else if (line.startsWith("data:")) {
          const value = fieldValue(line, 5);
          // The newline that joins lines counts too: endless empty ones are an endless event.
          dataLength += value.length + 1;
          if (dataLength > streamEventBytesMax) throw tooLong();
          data.push(value);
        } else if (line.startsWith("event:")) {
          event = fieldValue(line, 6);
        }
      }
      pending = pending.slice(from);
      if (pending.length + dataLength > streamEventBytesMax) throw tooLong();
      return events;
    },
  };
}

function tooLong(): RangeError {
  return new RangeError(`one streamed event is over ${streamEventBytesMax} bytes`);
}

function fieldValue(line: string, nameLength: number): string {
  return line.charCodeAt(nameLength) === 0x20 ? line.slice(nameLength + 1) : line.slice(nameLength);
}
