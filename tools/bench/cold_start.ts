// From nothing running to the first request at the model server.

import { type Around, type Bench, type Findings, median, ratio, sampled } from "./bench.ts";
import { type BenchHome, benchHome } from "./bench_home.ts";
import { requestEvents } from "../../core/wire/client.ts";
import { isJsonObject, parseJsonObject } from "../../core/json.ts";
import { ownRoot } from "../launch/root.ts";
import { startFloor } from "./floor.ts";
import { linesOf } from "./lines.ts";
import { noon } from "./replies.ts";
import { type ScriptedServer, startScriptedServer } from "./scripted_server.ts";

/** The client looks for the socket this often. */
const lookMs = 2;
const startMsMax = 60_000;

export const coldStart: Bench = {
  name: "start",
  about:
    "`deno task up` on a home that exists, nothing running, caches warm, until the first request is whole at the model server: task, launcher, " +
    "its checks, both roles at once, then one message from a client that waits for loop.sock. Beside it the floor loop, from its start to " +
    "its first request, and the start of Deno itself. Bounded by loading the code of two processes, one after the other: the launcher checks " +
    "everything before a role starts.",
  run,
};

async function run({ quick }: Around): Promise<Findings> {
  await using server = startScriptedServer();
  server.script = () => noon;
  await using home = await benchHome(server.url);
  const floorDirectory = `${home.paths.home}/floor`;
  await Deno.mkdir(floorDirectory);
  const starts: Start[] = [];
  const floors: number[] = [];
  const bare: number[] = [];
  for (let round = 0; round <= (quick ? 4 : 12); round++) {
    const start = await coldRequest(home, server, `chat-cold${round}`);
    const floor = await floorRequest(server, floorDirectory, round);
    const deno = await denoStart();
    if (round === 0) continue;
    starts.push(start);
    floors.push(floor);
    bare.push(deno);
  }
  const of = (name: keyof Start) => starts.map((start) => start[name]);
  return {
    figures: [
      sampled("start.request", "nothing running → up → first request", of("request"), {
        target: { atMost: 300 },
      }),
      sampled("start.launched", "of that, until the roles are started", of("launched")),
      sampled("start.loopd", "loopd, from its start to ready", of("loopd")),
      sampled("start.brokerd", "brokerd, from its start to ready", of("brokerd")),
      sampled("start.floor", "floor loop, from its start to its first request", floors),
      ratio("start.ratio", "first request, times the floor's", {
        value: median(of("request")),
        over: median(floors),
      }),
      sampled("start.deno", "beside it: deno run of an empty program", bare),
    ],
  };
}

/** Milliseconds. */
interface Start {
  readonly launched: number;
  readonly request: number;
  readonly loopd: number;
  readonly brokerd: number;
}

async function coldRequest(home: BenchHome, server: ScriptedServer, session: string): Promise<Start> {
  server.reset();
  const began = performance.now();
  const child = new Deno.Command(Deno.execPath(), {
    args: ["task", "-q", "up", "--home", home.paths.home, "--json"],
    cwd: ownRoot,
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  const times = new Map<string, number>();
  const reading = (async () => {
    for await (const line of linesOf(child.stdout)) {
      const event = parseJsonObject(line);
      const said = isJsonObject(event?.said) ? `.${event.said.event}` : "";
      times.set(`${event?.event}${said} ${event?.role ?? ""}`, Date.parse(String(event?.time)));
    }
  })();
  try {
    await untilServed(home.paths.loopSocket, began + startMsMax);
    const path = `/v1/sessions/${session}/turns`;
    const body = { text: "What time is it?" };
    for await (const event of requestEvents(home.paths.loopSocket, { method: "POST", path, body })) {
      if (event.event === "done") break;
    }
  } finally {
    child.kill("SIGTERM");
    await child.status;
    await reading;
  }
  const at = (name: string) => (times.get(name) ?? NaN) - performance.timeOrigin;
  return {
    launched: at("started loopd") - began,
    request: server.arrivals[0].wholeAt - began,
    loopd: at("role.ready loopd") - at("started loopd"),
    brokerd: at("role.ready brokerd") - at("started brokerd"),
  };
}

async function untilServed(path: string, until: number): Promise<void> {
  while (performance.now() < until) {
    try {
      return (await Deno.connect({ transport: "unix", path })).close();
    } catch {
      await new Promise((resolve) => setTimeout(resolve, lookMs));
    }
  }
  throw new Error(`${path} was not served in time`);
}

async function floorRequest(server: ScriptedServer, directory: string, round: number): Promise<number> {
  server.reset();
  const began = performance.now();
  await using floor = startFloor(server.url, directory);
  await floor.converse(`${directory}/${round}.jsonl`);
  return server.arrivals[0].wholeAt - began;
}

async function denoStart(): Promise<number> {
  const began = performance.now();
  await new Deno.Command(Deno.execPath(), { args: ["eval", ""], stdout: "null" }).output();
  return performance.now() - began;
}
