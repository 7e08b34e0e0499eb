// Keeps one slot of the model's server busy by a generation that does not end, so that a check can show what runs beside it.
// Reads the stream and throws it away; the end of the check closes it, which frees the slot.

import { eventStreamParser } from "../../core/wire/event_stream.ts";
import { bearerHeader, type ServerAddress } from "./server_view.ts";

export interface BusySlot extends AsyncDisposable {
  /** How often a generation ended, its context full, and the next was begun. */
  readonly restarts: number;
}

const restartsMax = 10_000;
const startMsMax = 60_000;

/** Resolves once the server works on the slot. */
export async function keepBusy(
  address: ServerAddress,
  slot: number,
  signal: AbortSignal,
): Promise<BusySlot> {
  const stopping = new AbortController();
  const begun = Promise.withResolvers<void>();
  const client = Deno.createHttpClient({ http2: false, poolMaxIdlePerHost: 0 });
  let restarts = 0;
  const generate = async () => {
    const response = await fetch(`${address.url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", ...bearerHeader(address) },
      body: JSON.stringify({
        messages: [{ role: "user", content: "Count upwards from one, one number a line, and never stop." }],
        stream: true,
        id_slot: slot,
        cache_prompt: true,
        return_progress: true,
        ignore_eos: true,
      }),
      redirect: "manual",
      signal: AbortSignal.any([stopping.signal, signal]),
      client,
    });
    if (!response.ok || response.body === null) {
      throw new Error(`the server answered ${response.status} when slot ${slot} was to be made busy`);
    }
    const parser = eventStreamParser();
    for await (const bytes of response.body) {
      if (parser.push(bytes).length > 0) begun.resolve();
    }
  };
  const running = (async () => {
    for (; restarts < restartsMax; restarts++) await generate();
  })().catch((error) => begun.reject(error));
  const timer = setTimeout(
    () => begun.reject(new Error(`slot ${slot} did not become busy in ${startMsMax / 1000} s`)),
    startMsMax,
  );
  const stop = async () => {
    clearTimeout(timer);
    stopping.abort();
    await running;
    client.close();
  };
  try {
    await begun.promise;
  } catch (error) {
    await stop();
    throw error;
  }
  clearTimeout(timer);
  return {
    get restarts() {
      return restarts;
    },
    [Symbol.asyncDispose]: stop,
  };
}
