// A consult endpoint that answers at once, and what asking it costs whoever asks without a broker.

import { fileURLToPath } from "node:url";
import { startLineProcess } from "./line_process.ts";

export interface Sink extends AsyncDisposable {
  readonly url: string;
  readonly asked: number;
}

const completion = JSON.stringify({
  model: "big",
  choices: [{ index: 0, message: { role: "assistant", content: "Four." }, finish_reason: "stop" }],
});

export function startSink(): Sink {
  let asked = 0;
  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, async (request) => {
    await request.bytes();
    asked++;
    return new Response(completion, { headers: { "content-type": "application/json" } });
  });
  return {
    url: `http://127.0.0.1:${server.addr.port}/v1/chat/completions`,
    get asked() {
      return asked;
    },
    async [Symbol.asyncDispose]() {
      await server.shutdown();
    },
  };
}

export interface BareAsker extends AsyncDisposable {
  /** Milliseconds of one POST on a connection of its own, as brokerd sends it. */
  ask(question: string): Promise<number>;
}

export function startBareAsker(url: string): BareAsker {
  const loop = startLineProcess([
    ...["run", "-q", "--no-prompt", "--cached-only", `--allow-net=${new URL(url).host}`],
    fileURLToPath(new URL("./bare_ask_loop.ts", import.meta.url)),
    url,
  ]);
  return {
    ask: async (question) => Number(await loop.ask(question)),
    [Symbol.asyncDispose]: () => loop[Symbol.asyncDispose](),
  };
}
