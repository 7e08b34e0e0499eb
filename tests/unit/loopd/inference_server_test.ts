// The inference server as a place: what loopd makes of one that is silent, loading, gone, too small, or that shows no slots.

import { assertEquals, assertRejects } from "@std/assert";
import type { InferenceConfig } from "../../../core/config/loopd_toml.ts";
import { InferenceServer } from "../../../loopd/inference/server.ts";
import { ModelFailure } from "../../../loopd/inference/model_failure.ts";
import { fakeClock } from "../../support/fake_clock.ts";
import { startModelStub } from "../../../tools/stubs/model.ts";

const signal = new AbortController().signal;

function serverAt(url: string, more: Partial<InferenceConfig> = {}, slots: readonly number[] = [0, 2]) {
  const clock = fakeClock();
  const config: InferenceConfig = {
    url,
    remote: false,
    model: "local",
    secretName: undefined,
    livenessMs: 120_000,
    maxTokens: 100,
    temperature: undefined,
    history: "auto",
    ...more,
  };
  return { clock, server: new InferenceServer({ clock, config, slots }) };
}

/** Takes connections, reads what comes, and answers nothing. */
function silentListener() {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const connections: Deno.Conn[] = [];
  const asked = Promise.withResolvers<void>();
  const serving = (async () => {
    for await (const connection of listener) {
      connections.push(connection);
      connection.read(new Uint8Array(1_024)).then(() => asked.resolve(), () => {});
    }
  })();
  return {
    url: `http://127.0.0.1:${(listener.addr as Deno.NetAddr).port}`,
    asked: asked.promise,
    async [Symbol.asyncDispose]() {
      listener.close();
      await serving.catch(() => {});
      for (const connection of connections) connection.close();
    },
  };
}

Deno.test("F18 a server that takes connections and answers nothing is silent after the liveness timeout, where that is shorter than 5 s", async () => {
  await using listener = silentListener();
  const { clock, server } = serverAt(listener.url, { livenessMs: 800 });
  const failed = assertRejects(() => server.historyFinding(signal), ModelFailure, "silent");
  await listener.asked;
  await clock.advance(799);
  assertEquals(clock.pending, 1);
  await clock.advance(1);
  await failed;
  server.close();
});

Deno.test("F18 a look at a silent server ends after 5 s though more silence would be borne on a stream", async () => {
  await using listener = silentListener();
  const { clock, server } = serverAt(listener.url);
  const looked = server.look();
  await listener.asked;
  await clock.advance(5_000);
  assertEquals((await looked).kind, "silent");
  server.close();
});

Deno.test("F22 a server with two slots is refused where slot 2 is named, and one with three is ready", async () => {
  await using two = await startModelStub({ totalSlots: 2 });
  const small = serverAt(two.url).server;
  await assertRejects(() => small.ready(signal), ModelFailure, "has 2 slots, and [slots] needs 3");
  small.close();
  await using three = await startModelStub({ totalSlots: 3 });
  const enough = serverAt(three.url).server;
  await enough.ready(signal);
  enough.close();
});

Deno.test("F34 a server that does not run is named with its address and the runbook entry, at once", async () => {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = listener.addr as Deno.NetAddr;
  listener.close();
  const { server } = serverAt(`http://127.0.0.1:${port}`);
  const failure = await assertRejects(
    () => server.ready(signal),
    ModelFailure,
    `http://127.0.0.1:${port} does not answer`,
  );
  assertEquals(failure.message.includes("docs/runbook.md#inference-unreachable"), true);
  server.close();
});

Deno.test("F18 a server that shows no slots: at start nothing is waited for, after a broken request one poll's time is", async () => {
  const http = Deno.serve(
    { hostname: "127.0.0.1", port: 0, onListen: () => {} },
    () => new Response("{}", { status: 404 }),
  );
  const { clock, server } = serverAt(`http://127.0.0.1:${(http.addr as Deno.NetAddr).port}`);
  await server.drained(2, "start", signal);
  const before = clock.monotonic();
  let idle = false;
  const drained = server.drained(2, "request", signal).then(() => idle = true);
  // The look itself, 1.2 s after the one at start, and then as long again.
  while (!idle) {
    await clock.advance(100);
    await new Promise((resolve) => setTimeout(resolve));
  }
  await drained;
  assertEquals(clock.monotonic() - before >= 2_400, true);
  server.close();
  await http.shutdown();
});
