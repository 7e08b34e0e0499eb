// The practice model server: a look-alike of llama-server with slots, prompt cache and streams, whose words come
// from a script. Usable in-process (`startModelStub`) and as a program (`--help`).
// Owns: the stub's interface and the command line. It never runs a model, listens on loopback alone, and
// reaches nothing.

import { Command, InvalidArgumentError } from "commander";
import type { ModelRequest } from "./model_requests.ts";
import { ModelServer, type ModelServerOptions, type Probe, type ScriptSource } from "./model_server.ts";
import { detokenize } from "./model_tokens.ts";
import { listen } from "./wire.ts";

export interface ModelStubOptions extends ModelServerOptions {
  /** Default 0: a free one. */
  port?: number;
  hostname?: "127.0.0.1" | "::1";
}

export interface ModelStub extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  /** The chat requests in order of arrival; the records change while a request runs. */
  readonly requests: readonly ModelRequest[];
  readonly probes: readonly Probe[];
  /** Requests that named a slot which was busy. */
  readonly collisions: number;
  readonly slots: readonly { id: number; isProcessing: boolean; tokens: number; text: string }[];
  /** Throws when a JSON script does not fit. */
  setScript(script: ScriptSource): void;
  finishLoading(): void;
  /** The earliest chat request that this method has not given out; waits for one. */
  nextRequest(): Promise<ModelRequest>;
  /** The earliest chat request, past ones included, for which the predicate is or becomes true. */
  waitFor(predicate: (request: ModelRequest) => boolean): Promise<ModelRequest>;
  close(): Promise<void>;
}

export async function startModelStub(options: ModelStubOptions = {}): Promise<ModelStub> {
  const server = new ModelServer(options);
  const hostname = options.hostname ?? "127.0.0.1";
  const listener = await listen(
    { hostname, port: options.port ?? 0 },
    (connection) => server.serve(connection),
  );
  const { core } = server;
  const close = async () => {
    server.close();
    await listener.close();
  };
  return {
    url: `http://${hostname === "::1" ? "[::1]" : hostname}:${listener.port}`,
    port: listener.port,
    requests: core.requests.all,
    probes: server.probes,
    get collisions() {
      return core.slots.collisions;
    },
    get slots() {
      return core.slots.all.map(({ id, busy, tokens }) => ({
        id,
        isProcessing: busy,
        tokens: tokens.length,
        text: detokenize(tokens),
      }));
    },
    setScript: (script) => server.setScript(script),
    finishLoading: () => server.finishLoading(),
    nextRequest: () => core.requests.next(),
    waitFor: (predicate) => core.requests.waitFor(predicate),
    close,
    [Symbol.asyncDispose]: close,
  };
}

async function main(): Promise<void> {
  const command = new Command("model")
    .description("A practice model server that behaves like llama-server. Its words come from a script.")
    .option("--port <number>", "port on 127.0.0.1; 0 takes a free one", wholeNumber, 0)
    .option("--slots <number>", "number of slots", wholeNumber, 3)
    .option("--context <tokens>", "context of each slot; one byte is one token", wholeNumber, 262_144)
    .option("--script <file>", "JSON script: a list of replies, or {rules: […]}; default: the phrases")
    .option("--tokens-per-second <number>", "speak at this speed; 0 is at once", wholeNumber, 0)
    .option("--api-key <key>", "require this key")
    .option("--unified-cache", "a request on one slot clears the idle others")
    .option("--strip-thinking", "a template that drops old thinking")
    .option("--no-strict-pairing", "accept tool results that answer no call")
    .option("--cancel-notice-ms <number>", "how late a lost client is noticed in silence", wholeNumber, 0)
    .option("--loading", "answer 503 until POST /stub/loaded")
    .option("--lifeline", "stop when standard input ends")
    .parse();
  const flags = command.opts();
  const options: ModelStubOptions = {
    port: flags.port,
    totalSlots: flags.slots,
    nCtx: flags.context,
    tokensPerSecond: flags.tokensPerSecond,
    apiKey: flags.apiKey,
    unifiedCache: flags.unifiedCache ?? false,
    thinkTemplate: flags.stripThinking ? "strip" : "keep",
    strictPairing: flags.strictPairing,
    cancelNoticeMs: flags.cancelNoticeMs,
    loading: flags.loading ?? false,
  };
  if (flags.script !== undefined) options.script = await Deno.readTextFile(flags.script);
  await using stub = await startModelStub(options);
  console.log(`practice model listening on ${stub.url}`);
  const stop = Promise.withResolvers<void>();
  for (const signal of signals) Deno.addSignalListener(signal, stop.resolve);
  if (flags.lifeline) untilInputEnds().then(stop.resolve, stop.resolve);
  await Promise.race([stop.promise, report(stub)]);
  for (const signal of signals) Deno.removeSignalListener(signal, stop.resolve);
}

/** Whoever started this process holds the other end, so that it ends with them however they end. */
async function untilInputEnds(): Promise<void> {
  for await (const _ of Deno.stdin.readable);
}

const signals = ["SIGINT", "SIGTERM"] as const;

/** One line for each request that ended. */
async function report(stub: ModelStub): Promise<never> {
  const told = new WeakSet<ModelRequest>();
  for (;;) {
    const request = await stub.waitFor((each) => each.endedAtMs !== undefined && !told.has(each));
    told.add(request);
    const { order, slot = "-", state, status, cacheN, promptN, predictedN, finish = "-", collided } = request;
    console.log(
      `${
        String(order).padStart(4, "0")
      } slot ${slot} ${state} ${status} cached ${cacheN} prompt ${promptN} ` +
        `predicted ${predictedN} finish ${finish}${collided ? " COLLIDED" : ""}`,
    );
  }
}

function wholeNumber(text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new InvalidArgumentError("a whole number is wanted.");
  return Number(text);
}

if (import.meta.main) {
  try {
    await main();
  } catch (fault) {
    console.error(`the practice model cannot start: ${(fault as Error).message}`);
    Deno.exit(2);
  }
  // A read of standard input that has not ended would hold the process.
  Deno.exit(0);
}
