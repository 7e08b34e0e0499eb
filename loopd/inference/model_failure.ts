// Why no message came of a request, as a turn will name it. The text is fit to show: a server's words are shortened and made printable.

import type { FailureReason } from "../session/record.ts";

/** No message came of the request. `settled`: the server ended the request itself, so its slot is idle. */
export class ModelFailure extends Error {
  override readonly name = "ModelFailure";
  constructor(
    readonly reason: FailureReason,
    readonly detail: string,
    readonly settled: boolean,
    /** The server failed before any token, in a way that another try may not meet. */
    readonly mayRetry = false,
    /** The server did not accept the request as it was formed. */
    readonly refused = false,
  ) {
    super(`${reason}: ${detail}`);
  }
}

/** A server's words, made fit for one line of a log. */
export function plain(text: string): string {
  return text.replace(/[^\x20-\x7e]+/g, " ").slice(0, 300);
}
