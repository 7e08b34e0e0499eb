// How soon a child's first request follows its parent's call.

import { type Around, type Bench, type Findings, median, ratio, sampled } from "./bench.ts";
import { benchHome, startRoles } from "./bench_home.ts";
import { call, clockCall, noon } from "./replies.ts";
import { startScriptedServer } from "./scripted_server.ts";

export const spawnChild: Bench = {
  name: "spawn",
  about:
    "From the model's reply that calls subagent to the child's first request at the server, and from the child's answer to its parent's " +
    "next request. Before the child speaks, the parent's message and the spawn are durable, and so is the child's own log with its fresh " +
    "baseline: a new directory, two directory fsyncs. Bounded by those fsyncs. Beside it one iteration of clock in the same session.",
  run,
};

async function run({ quick }: Around): Promise<Findings> {
  const subagent = call("call_tool", { name: "subagent", arguments: { task: "Say what time it is." } });
  await using server = startScriptedServer();
  await using home = await benchHome(server.url);
  await using roles = await startRoles(home);
  const spawns: number[] = [];
  const returns: number[] = [];
  const clocks: number[] = [];
  for (let round = 0; round <= (quick ? 10 : 100); round++) {
    const session = await roles.newSession();
    server.reset();
    // Clock first, then the child (on the background slot), then the answer.
    server.script = ({ order, slot }) => slot !== 0 || order > 2 ? noon : order === 1 ? clockCall : subagent;
    await roles.send(session, "What time is it?");
    const [first, second, child, last] = server.arrivals;
    if (child.slot === 0 || last.slot !== 0) throw new Error("the child did not run on the background slot");
    if (round === 0) continue;
    clocks.push(second.wholeAt - first.answeredAt);
    spawns.push(child.wholeAt - second.answeredAt);
    returns.push(last.wholeAt - child.answeredAt);
  }
  return {
    figures: [
      sampled("spawn.child", "parent's reply → child's first request", spawns),
      sampled("spawn.return", "child's answer → parent's next request", returns),
      sampled("spawn.clock", "beside it: one iteration with clock", clocks),
      ratio("spawn.ratio", "spawn, in iterations with clock", {
        value: median(spawns),
        over: median(clocks),
      }),
    ],
  };
}
