// A consult endpoint that answers at once, and what asking it costs whoever asks without a broker.

import * as http from "node:http";

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

/** Milliseconds of one POST on a connection of its own, as brokerd sends it. */
export async function bareAsk(url: string, question: string): Promise<number> {
  const body = JSON.stringify({
    model: "big",
    messages: [{ role: "user", content: question }],
    temperature: 0.6,
  });
  const began = performance.now();
  await new Promise<void>((resolve, reject) => {
    const request = http.request(url, {
      method: "POST",
      agent: false,
      headers: { "content-type": "application/json", "content-length": body.length, connection: "close" },
    }, (reply) => {
      reply.resume();
      reply.on("end", resolve);
    });
    request.on("error", reject);
    request.end(body);
  });
  return performance.now() - began;
}
