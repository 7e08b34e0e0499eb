// From what a terminal sends to keys and pastes. A paste stands between two marks and is one event, so that a newline in it presses no
// Enter. Which key does what is not decided here.

import { Buffer } from "node:buffer";
import { emitKeypressEvents, type Key } from "node:readline";
import { Readable } from "node:stream";
import { userTextBytesMax } from "../../core/limits.ts";

export type { Key };

export interface InputHandlers {
  /** `text` is what the key types, where it types anything. */
  onKey(text: string | undefined, key: Key): void;
  onPaste(text: string): void;
}

const pasteBegins = "\x1b[200~";
const pasteEnds = "\x1b[201~";
/** Of one paste this much is kept; loopd refuses a message of that size and says so. */
const pasteCharactersMax = 2 * userTextBytesMax;

/** Returns what takes the terminal's text, piece by piece. */
export function inputParser({ onKey, onPaste }: InputHandlers): (text: string) => void {
  // node:readline reads keys from a stream's events; this one is never read, only told.
  const stream = new Readable({ read() {} });
  emitKeypressEvents(stream);
  stream.on("keypress", onKey);
  let rest = "";
  let pasted: string | undefined;
  return (text) => {
    rest += text;
    for (;;) {
      const mark = pasted === undefined ? pasteBegins : pasteEnds;
      const at = rest.indexOf(mark);
      const ready = at === -1 ? rest.length - beginningOf(mark, rest) : at;
      const before = rest.slice(0, ready);
      rest = rest.slice(at === -1 ? ready : at + mark.length);
      if (pasted !== undefined) pasted = (pasted + before).slice(0, pasteCharactersMax);
      else if (before !== "") stream.emit("data", Buffer.from(before));
      if (at === -1) return;
      if (pasted === undefined) pasted = "";
      else {
        onPaste(pasted);
        pasted = undefined;
      }
    }
  };
}

/** How many characters at the end of the text may become the mark. */
function beginningOf(mark: string, text: string): number {
  for (let length = Math.min(mark.length - 1, text.length); length > 0; length--) {
    if (text.endsWith(mark.slice(0, length))) return length;
  }
  return 0;
}
