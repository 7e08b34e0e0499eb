// What an empty first turn costs a small context.

import { type Around, type Bench, type Findings } from "./bench.ts";
import { benchHome, startRoles } from "./bench_home.ts";
import { noon } from "./replies.ts";
import { startScriptedServer } from "./scripted_server.ts";

export const firstRequestBytes: Bench = {
  name: "first-request",
  about:
    "The bytes of the first request of a new session in a new home: instructions, tools, the owner's few words. Every byte is read by " +
    "the model before its first word. Bounded by what the core tools must say of themselves; the grammar of raw calls travels beside the prompt " +
    "and costs the model nothing.",
  run,
};

async function run(_: Around): Promise<Findings> {
  await using server = startScriptedServer();
  server.script = () => noon;
  await using home = await benchHome(server.url);
  await using roles = await startRoles(home);
  await roles.send(await roles.newSession(), "hi");
  const body = JSON.parse(server.lastBody);
  const prompt = JSON.stringify({ messages: body.messages, tools: body.tools }).length;
  return {
    figures: [
      {
        id: "first-request.bytes",
        title: "request of an empty first turn",
        value: server.arrivals[0].bytes,
        unit: "bytes",
        target: { atMost: 8_000 },
      },
      { id: "first-request.prompt", title: "of that, messages and tools", value: prompt, unit: "bytes" },
    ],
  };
}
