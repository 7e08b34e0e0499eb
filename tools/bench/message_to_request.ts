// How soon a message that the owner sends is before the model.

import { type Around, type Bench, type Findings, sampled } from "./bench.ts";
import { benchHome, startRoles } from "./bench_home.ts";
import { noon } from "./replies.ts";
import { startScriptedServer } from "./scripted_server.ts";

const turnsEach = 20;

export const messageToRequest: Bench = {
  name: "message",
  about:
    "A running loopd: from the moment a client begins to open loop.sock until its message, as a request, is whole at the model " +
    "server. Sessions of 20 turns. Bounded by two connections (the client's, the server's) and one fsync: the message is durable before " +
    "the model reads it.",
  run,
};

async function run({ quick }: Around): Promise<Findings> {
  await using server = startScriptedServer();
  server.script = () => noon;
  await using home = await benchHome(server.url);
  await using roles = await startRoles(home);
  const samples: number[] = [];
  const first: number[] = [];
  const ends: number[] = [];
  for (let session = 0; session <= (quick ? 4 : 20); session++) {
    const id = await roles.newSession();
    for (let turn = 0; turn < turnsEach; turn++) {
      server.reset();
      const began = performance.now();
      await roles.send(id, "What time is it?");
      const [{ wholeAt, answeredAt }] = server.arrivals;
      if (session === 0) {
        // The process is new: what it compiles is said apart.
        if (turn === 0) first.push(wholeAt - began);
        continue;
      }
      samples.push(wholeAt - began);
      ends.push(performance.now() - answeredAt);
    }
  }
  return {
    figures: [
      sampled("message.request", "message on the socket → request at the server", samples, {
        target: { atMost: 3 },
      }),
      sampled("message.first", "the same, the very first of a process", first),
      sampled("message.done", "answer of the server → done at the client", ends),
    ],
  };
}
