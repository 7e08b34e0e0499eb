// What Boxmaker adds to one tool iteration, beside the floor loop.

import { call, clockCall, noon } from "./replies.ts";
import type { Around, Bench, Findings } from "./bench.ts";
import { median, ratio, sampled } from "./bench.ts";
import { benchHome, type Roles, startRoles } from "./bench_home.ts";
import { startFloor } from "./floor.ts";
import { type ScriptedReply, type ScriptedServer, startScriptedServer } from "./scripted_server.ts";
import { startBareAsker, startSink } from "./sink.ts";

/** Iterations in one turn: below [session] tool_iterations. */
const iterations = 12;
const question = "What is 2+2, one word.";

export const toolIteration: Bench = {
  name: "tool-iteration",
  about:
    "From one request at the model server to the next, with one tool call between them: the reply is read, the model's " +
    "message made durable, the call run, its result made durable, the next request sent. Loop and floor take turns against the same " +
    "scripted server in the same run, each conversation new. Bounded by two fsyncs, one connection and the model's speed; a brokered " +
    "call adds a hop to brokerd and one fsync there when it is denied, two and the consult itself when it is allowed. The sink's own time is " +
    "what a bare POST from a process of its own takes, and is taken off.",
  run,
};

async function run({ quick, progress }: Around): Promise<Findings> {
  const rounds = quick ? 8 : 40;
  await using server = startScriptedServer();
  await using sink = startSink();
  await using asker = startBareAsker(sink.url);
  await using home = await benchHome(server.url, {
    brokerdToml: `[consult]\nurl = "${sink.url}"\nmodel = "big"\nsecret = "consult"\n`,
    grantsToml: `[[grant]]\ntool = "consult"\nmax_taint = "private"\nuntrusted = false\n`,
  });
  await using roles = await startRoles(home);
  const floorDirectory = `${home.paths.home}/floor`;
  await Deno.mkdir(floorDirectory);
  await using floor = startFloor(server.url, floorDirectory);

  const consult = call("call_tool", { name: "consult", arguments: { question } });
  const taken = { floor: [], core: [], denied: [], allowed: [] } as Record<string, number[]>;
  const servers: number[] = [];
  const asks: number[] = [];
  for (let round = 0; round <= rounds; round++) {
    if (round % 10 === 0) progress(`round ${round} of ${rounds}`);
    const one = {
      floor: await intervals(server, clockCall, () => floor.converse(`${floorDirectory}/${round}.jsonl`)),
      core: await intervals(server, clockCall, () => converse(roles)),
      denied: await intervals(server, consult, () => converse(roles, "secret")),
      allowed: await intervals(server, consult, () => converse(roles)),
    };
    for (let ask = 0; ask < iterations; ask++) asks.push(await asker.ask(question));
    // The first round warms up what is compiled while it runs.
    if (round === 0) continue;
    for (const [name, samples] of Object.entries(one)) taken[name].push(...samples);
    servers.push(...server.arrivals.map(({ headAt, answeredAt }) => answeredAt - headAt));
  }
  if (sink.asked < rounds * iterations) throw new Error("the allowed consults did not reach the sink");

  const floorMs = median(taken.floor);
  const sinkMs = median(asks.slice(iterations));
  const allowedMs = median(taken.allowed);
  return {
    figures: [
      sampled("tool-iteration.floor", "floor loop, one iteration", taken.floor),
      sampled("tool-iteration.server", "of that, the scripted server's own share", servers),
      sampled("tool-iteration.core", "Boxmaker, a core tool (clock)", taken.core),
      ratio("tool-iteration.core-ratio", "  times the floor", { value: median(taken.core), over: floorMs }, {
        target: { atMost: 2 },
      }),
      sampled("tool-iteration.denied", "Boxmaker, a consult that is denied", taken.denied),
      ratio(
        "tool-iteration.denied-ratio",
        "  times the floor",
        { value: median(taken.denied), over: floorMs },
        { target: { atMost: 3 } },
      ),
      sampled("tool-iteration.allowed", "Boxmaker, a consult that is allowed", taken.allowed),
      sampled("tool-iteration.sink", "of that, the sink (a bare POST)", asks),
      ratio(
        "tool-iteration.allowed-ratio",
        "  times the floor, the sink taken off",
        { value: allowedMs - sinkMs, over: floorMs },
        { target: { atMost: 3 } },
      ),
    ],
  };
}

async function converse(roles: Roles, sensitivity?: string): Promise<void> {
  await roles.send(await roles.newSession(sensitivity), "What time is it?");
}

/** Milliseconds from request to request in one turn of `iterations` calls. */
async function intervals(
  server: ScriptedServer,
  reply: ScriptedReply,
  turn: () => Promise<void>,
): Promise<number[]> {
  server.reset();
  server.script = ({ order }) => order <= iterations ? reply : noon;
  await turn();
  const { arrivals } = server;
  return arrivals.slice(1).map(({ wholeAt }, at) => wholeAt - arrivals[at].wholeAt);
}
