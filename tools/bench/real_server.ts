// The law of the prefix on a real llama.cpp server with three slots. A tiny model follows no words, so a relay forces each of its steps by a grammar,
// which leaves prompt and cache untouched; what is cached and what is lost are the server's own numbers, from loopd's log.

import { requestJson } from "../../core/wire/client.ts";
import { makePrivateHome } from "../demo/private_home.ts";
import { startRoles } from "../demo/running_roles.ts";
import { keepBusy } from "../device_check/busy_slot.ts";
import { ServerView } from "../device_check/server_view.ts";
import { targetAt } from "../device_check/target.ts";
import { ownEnvironment } from "../launch/environment.ts";
import { type ChatMessage, contentText } from "../stubs/model_template.ts";
import { startSteer, type Wish } from "../stubs/steer.ts";
import { type Around, type Bench, type Curve, type Figure, type Findings, median, sampled } from "./bench.ts";
import { turn as runTurn } from "./bench_home.ts";

const histories = ["raw", "structured"] as const;
type History = typeof histories[number];

export function realServer(url: string): Bench {
  return {
    name: "real",
    about:
      "Twenty turns of a live session on slot 0 of a real llama.cpp server, four requests each: a call of recall whose JSON is spaced as no template would " +
      "space it, a call of clock, a child that spawns a child, an answer. Slot 1 generates without end meanwhile; a heartbeat every three seconds and the children " +
      "run on slot 2. Lost is what the server computed again of the prefix beyond the law (cache_n = all of the request before, less one). Bounded by what the server keeps " +
      "and by how its template writes what it is given back.",
    run: (around) => run(url, around),
  };
}

async function run(url: string, around: Around): Promise<Findings> {
  const runs = new Map<History, Run>();
  for (const history of histories) runs.set(history, await converse(url, history, around));
  const figures: Figure[] = [];
  for (const [history, { main, background }] of runs) {
    const lost = main.slice(1).map((request, at) => Math.max(0, total(main[at]) - 1 - request.cacheN));
    const beyond = lost.map((tokens, at) => Math.max(0, tokens - main[at].predictedN));
    const figure = (id: string, title: string, value: number, more: Partial<Figure> = {}): Figure => ({
      id: `real.${history}-${id}`,
      title: `${history}: ${title}`,
      value,
      unit: "tokens",
      ...more,
    });
    figures.push(
      figure("requests", "of the session, on slot 0", main.length, { unit: "requests" }),
      figure("background", "of others, on slot 2 meanwhile", background.length, { unit: "requests" }),
      figure("context", "in context at the end", total(main[main.length - 1])),
      figure(
        "lost",
        "lost beyond the law, over all requests",
        lost.reduce((sum, one) => sum + one, 0),
        history === "raw" ? { target: { atMost: 0 } } : {},
      ),
      figure("lost-most", "most lost by one request", Math.max(...lost)),
      figure("beyond", "most lost beyond the last generation", Math.max(...beyond), {
        target: { atMost: 0 },
      }),
      sampled(
        `real.${history}-computed`,
        `${history}: computed of a prompt, per request`,
        main.slice(1).map(({ promptN }) => promptN),
        {
          unit: "tokens",
        },
      ),
      sampled(
        `real.${history}-first-token`,
        `${history}: request → first token`,
        main.slice(1).map(({ firstTokenMs }) => firstTokenMs),
      ),
    );
    // What loopd says of itself must be what the server's numbers say.
    if (main.slice(1).some(({ lostN }, at) => lostN !== lost[at])) {
      throw new Error("loopd's log and the server's numbers disagree on what was lost");
    }
  }
  return { figures, curves: [curveOf(runs)] };
}

/** One model message, as loopd's log has it. */
interface Request {
  readonly cacheN: number;
  readonly promptN: number;
  readonly predictedN: number;
  readonly lostN: number;
  readonly firstTokenMs: number;
}

interface Run {
  readonly main: readonly Request[];
  readonly background: readonly Request[];
}

async function converse(url: string, history: History, { quick, progress }: Around): Promise<Run> {
  const target = targetAt(url);
  const signal = new AbortController().signal;
  {
    using view = new ServerView(target);
    const slots = await view.slots();
    if ((slots ?? []).some(({ busy }) => busy)) {
      throw new Error(`a slot of ${url} is busy: something else uses this server`);
    }
    if ((await view.totalSlots() ?? 3) < 3) {
      throw new Error(`${url} has fewer than three slots: start it with -np 3`);
    }
  }
  await using _busy = await keepBusy(target, 1, signal);
  await using relay = await startSteer({ target: target.url, wish });
  await using home = await makePrivateHome({
    loopdToml: `[inference]\nurl = "${relay.url}"\nhistory = "${history}"\n` +
      `[heartbeat]\nevery_minutes = 0.05\nprompt = "Look around."\n`,
    brokerdToml: "",
    grantsToml: "",
    secrets: {},
  }, { prefix: "bx-bench-" });
  await using _roles = await startRoles(home.paths, { own: ownEnvironment(), signal });
  const ask = async (path: string, method: "GET" | "POST" = "GET") =>
    (await requestJson(home.paths.loopSocket, { method, path, body: method === "POST" ? {} : undefined }))
      .body;

  const { session } = await ask("/v1/sessions", "POST") as { session: string };
  const turns = quick ? 5 : 20;
  for (let turn = 1; turn <= turns; turn++) {
    progress(`${history} history, turn ${turn} of ${turns}`);
    const { status, reason } = await runTurn(home.paths, session, `Turn ${turn}: do all of it.`);
    if (status !== "completed") throw new Error(`turn ${turn} ${status}: ${reason}`);
  }
  const { sessions } = await ask("/v1/sessions") as { sessions: { session: string }[] };
  const background: Request[] = [];
  for (const { session: other } of sessions) {
    if (other !== session) background.push(...await requestsOf(ask, other));
  }
  return { main: await requestsOf(ask, session), background };
}

async function requestsOf(ask: (path: string) => Promise<unknown>, session: string): Promise<Request[]> {
  const { records } = await ask(`/v1/sessions/${session}/log`) as { records: Record<string, unknown>[] };
  return records.filter(({ kind }) => kind === "assistant").map((record) => ({
    ...record.timings as Pick<Request, "cacheN" | "promptN" | "predictedN">,
    lostN: Number(record.lostN),
    firstTokenMs: Number(record.firstTokenMs),
  }));
}

function total({ cacheN, promptN, predictedN }: Request): number {
  return cacheN + promptN + predictedN;
}

/** What the model is to say next: it follows from the conversation alone. */
function wish(messages: readonly ChatMessage[]): Wish {
  const at = messages.findLastIndex(({ role }) => role === "user");
  const asked = contentText(messages[at]);
  const results = messages.slice(at).filter(({ role }) => role === "tool").length;
  const clock: Wish = { call: { name: "clock", arguments: {} } };
  const subagent = (task: string): Wish => ({
    call: { name: "call_tool", arguments: { name: "subagent", arguments: { task } } },
  });
  // As a model may write it and no template would: the spaces and the escape are its own. Nothing stands before the tag, where the test model
  // writes it as the one token that it is; under the relay's grammar it might spell it out later on.
  const spaced: Wish = {
    say: `<tool_call>\n{"name": "recall", "arguments": {  "query" :"caf\\u00e9 zeppelin"  }}\n</tool_call>`,
  };
  const answer: Wish = { say: "All of it is done." };
  if (asked.endsWith("inner")) return [clock][results] ?? answer;
  if (asked.endsWith("outer")) return [clock, subagent("inner")][results] ?? answer;
  if (asked.endsWith("Look around.")) return [clock][results] ?? { say: "All is quiet." };
  return [spaced, clock, subagent("outer")][results] ?? answer;
}

function curveOf(runs: ReadonlyMap<History, Run>): Curve {
  return {
    id: "real-prefix",
    title: "Prompt tokens computed for each request of the live session",
    xLabel: "tokens in context",
    yLabel: "tokens computed",
    series: [...runs].map(([history, { main }]) => ({
      name: `${history} (median ${median(main.slice(1).map(({ promptN }) => promptN))})`,
      points: main.slice(1).map((request) => [total(request), request.promptN] as const),
    })),
  };
}
