// What a consult costs whoever asks without a broker: one POST on a connection of its own for each line of standard input, its milliseconds as
// one line of output. A process of its own, as brokerd is one: asked from within the endpoint's own process it would wake nobody up.

import * as http from "node:http";
import { linesOf } from "./lines.ts";

function ask(url: string, body: string): Promise<void> {
  return new Promise((resolve, reject) => {
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
}

const [url] = Deno.args;
for await (const question of linesOf(Deno.stdin.readable)) {
  const began = performance.now();
  await ask(
    url,
    JSON.stringify({ model: "big", messages: [{ role: "user", content: question }], temperature: 0.6 }),
  );
  console.log(performance.now() - began);
}
