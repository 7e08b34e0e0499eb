// `deno task device-check`: the two device checks of the milestone on the owner's own model server, in a private temporary home. It uses the
// server's main and background slots, changes nothing in the owner's home, and leaves nothing behind, whatever ends it.

import { parseArgs } from "node:util";
import { describeError, exitCodes, UsageError } from "../../core/errors.ts";
import { chooseHome } from "../../core/home.ts";
import { Bx } from "../demo/bx.ts";
import { endOnSignals } from "../demo/interrupt.ts";
import { makePrivateHome } from "../demo/private_home.ts";
import { startRoles } from "../demo/running_roles.ts";
import { Story, terminalColour } from "../demo/story.ts";
import { ownEnvironment } from "../launch/environment.ts";
import { printFaults } from "../launch/program.ts";
import { startConsultEndpoint } from "../stubs/consult_endpoint.ts";
import { startModelStub } from "../stubs/model.ts";
import { startSteer } from "../stubs/steer.ts";
import { keepBusy } from "./busy_slot.ts";
import { type CheckId, NotShown, type Report, type Surroundings } from "./check.ts";
import { checkConsult, recorderAnswer } from "./consult.ts";
import { replyOf, wishOf } from "./request_text.ts";
import { ServerView } from "./server_view.ts";
import { checkSubagents } from "./subagents.ts";
import { ownersTarget, type Target, targetAt } from "./target.ts";

const help =
  `Checks on this device, with its own model server, what the demo shows with a practice model. In a private temporary home.

  deno task device-check [subagents|consult|all] [--home DIR | --url URL | --stub] [--busy-slot-1] [--steer] [--json]

  subagents      D1: a child runs on the background slot, and its parent keeps its prompt cache
  consult        D2: the audited body equals the captured request, and a session that recalled an untrusted note is refused
  all            both (default)
  --home DIR     the home whose loopd.toml names the server; else $BOXMAKER_HOME, else $HOME/.boxmaker. Only read, never written.
  --url URL      a server on this device, in place of the one in loopd.toml
  --stub         the practice model, in place of a server
  --busy-slot-1  keep a third slot busy with a long generation meanwhile; with --stub that is always so
  --steer        force each step by a grammar, for test models that cannot follow words
  --json         the last line of the output is one JSON object
  --help         this text

The server's main and background slots must be idle: stop your own roles first. What they had cached is computed anew afterwards.
Exit codes: 0 all checks hold, 1 one does not or could not be shown, 2 usage.`;

const checks: Readonly<Record<CheckId, { title: string; run: (around: Surroundings) => Promise<Report> }>> = {
  D1: { title: "subagents", run: checkSubagents },
  D2: { title: "consult", run: checkConsult },
};
const halves: Readonly<Record<string, readonly CheckId[]>> = {
  subagents: ["D1"],
  consult: ["D2"],
  all: ["D1", "D2"],
};

/** One turn of a real model on a slow device, its child's included. Its silence is bounded by [inference] liveness_ms. */
const commandMsMax = 30 * 60_000;

interface Options {
  readonly ids: readonly CheckId[];
  readonly home: string | undefined;
  readonly url: string | undefined;
  readonly stub: boolean;
  readonly busySlot: boolean;
  readonly steer: boolean;
  readonly json: boolean;
}

async function main(options: Options, signal: AbortSignal): Promise<number> {
  const story = new Story(terminalColour());
  let reports: Report[];
  try {
    reports = await runChecks(options, story, signal);
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof UsageError) {
      printFaults(error.faults);
      return exitCodes.usage;
    }
    reports = options.ids.map((id) => notShown(id, error));
    for (const report of reports) tell(report, story);
  }
  const ok = reports.every((report) => report.ok);
  if (options.json) {
    console.log(JSON.stringify({
      ok,
      checks: reports.map(({ id, ok, text, facts }) => ({ id, ok, text, ...facts })),
    }));
  }
  return ok ? exitCodes.done : exitCodes.failed;
}

async function runChecks(options: Options, story: Story, signal: AbortSignal): Promise<Report[]> {
  const own = ownEnvironment();
  await using practice = options.stub ? await startPractice() : undefined;
  const target = practice?.target ??
    (options.url === undefined
      ? await ownersTarget(chooseHome({ flag: options.home, env: own }))
      : targetAt(options.url));
  using view = new ServerView(target);
  const otherSlot = await findOtherSlot(target, view);
  await using busy = options.stub || options.busySlot ? await keepBusy(target, otherSlot, signal) : undefined;
  await using relay = options.steer ? await startSteer({ target: target.url, wish: wishOf }) : undefined;
  await using recorder = await startConsultEndpoint({
    behaviour: { kind: "answer", content: recorderAnswer },
  });
  await using home = await makePrivateHome(
    privateFiles({ ...target, url: relay?.url ?? target.url }, recorder.url),
    { prefix: "bx-check-" },
  );
  await using _roles = await startRoles(home.paths, { own, signal });
  const bx = new Bx({ home: home.paths.home, own, signal, timeoutMs: commandMsMax });
  const around: Surroundings = { bx, target, view, recorder, otherSlot, busy, progress };

  story.text(
    `Model server ${target.url}${options.stub ? " (the practice model)" : ""}, ` +
      `main slot ${target.slots.main}, background slot ${target.slots.background}` +
      (options.steer ? "; each step is forced by a grammar" : ""),
  );
  const reports: Report[] = [];
  for (const id of options.ids) {
    const report = await checks[id].run(around).catch((error) => {
      signal.throwIfAborted();
      return notShown(id, error);
    });
    reports.push(report);
    tell(report, story);
  }
  if (practice !== undefined && practice.collisions() > 0) throw new NotShown("a request met a busy slot");
  return reports;
}

/** The practice model does what it is asked, word for word, and speaks on the other slot for ever. */
async function startPractice() {
  const { promise: never } = Promise.withResolvers<void>();
  const model = await startModelStub({
    script: ({ slot, messages }) =>
      slot === 1 ? { content: "counting", hold: never } : replyOf(wishOf(messages)),
  });
  return {
    target: targetAt(model.url),
    collisions: () => model.collisions,
    [Symbol.asyncDispose]: () => model.close(),
  };
}

/** A slot that the checks do not use. Throws NotShown where the server is not fit, or not free, for a check. */
async function findOtherSlot({ url, slots }: Target, view: ServerView): Promise<number> {
  const used = [slots.main, slots.background];
  const found = await Promise.all([view.totalSlots(), view.slots()]).catch((error) => {
    throw new NotShown(`the model server at ${url} does not answer (${describeError(error)})`);
  });
  const [totalSlots, views] = found;
  const needed = Math.max(...used) + 1;
  if (totalSlots !== undefined && totalSlots < needed) {
    throw new NotShown(
      `the model server at ${url} has ${totalSlots} slots, and [slots] needs ${needed}: start it with -np ${needed}`,
    );
  }
  const taken = views?.find(({ id, busy }) => busy && used.includes(id));
  if (taken !== undefined) {
    throw new NotShown(
      `slot ${taken.id} of ${url} is busy: something else uses this server; stop it, and try again`,
    );
  }
  return [1, 0, 2].find((slot) => !used.includes(slot)) ?? 1;
}

function privateFiles({ url, bearer, inference, slots }: Target, consultUrl: string) {
  const { model, remote, livenessMs, maxTokens, temperature, history } = inference;
  const values = {
    url,
    model,
    remote,
    liveness_ms: livenessMs,
    max_tokens: maxTokens,
    temperature,
    history,
    secret: bearer === undefined ? undefined : "inference",
  };
  return {
    loopdToml: `[inference]\n${tomlLines(values)}[slots]\n${tomlLines(slots)}`,
    brokerdToml: `[consult]\n${tomlLines({ url: consultUrl, model: "device-check", secret: "consult" })}`,
    grantsToml: `[[grant]]\n${tomlLines({ tool: "consult", max_taint: "private" })}`,
    secrets: { consult: "device-check-key", ...(bearer === undefined ? {} : { inference: bearer }) },
  };
}

/** Texts, numbers and booleans are written in TOML as in JSON; what is undefined is left out. */
function tomlLines(values: Readonly<Record<string, string | number | boolean | undefined>>): string {
  return Object.entries(values).filter(([, value]) => value !== undefined)
    .map(([key, value]) => `${key} = ${JSON.stringify(value)}\n`).join("");
}

function tell({ id, ok, text, lines }: Report, story: Story): void {
  story.verdict(`${id} ${checks[id].title.padEnd(9)}`, { ok, text });
  for (const [name, line] of lines) story.detail(name, line);
}

function notShown(id: CheckId, error: unknown): Report {
  const reason = describeError(error);
  return { id, ok: false, text: reason, lines: [], facts: { reason } };
}

/** A real model takes its time: whoever sits before it is told what is waited for. */
function progress(text: string): void {
  if (Deno.stderr.isTerminal()) console.error(`… ${text}`);
}

function parseOptions(args: string[]): Options | "help" {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      home: { type: "string" },
      url: { type: "string" },
      stub: { type: "boolean", default: false },
      "busy-slot-1": { type: "boolean", default: false },
      steer: { type: "boolean", default: false },
      json: { type: "boolean", default: false },
      help: { type: "boolean", short: "h" },
    },
  });
  if (values.help) return "help";
  const [half = "all", ...more] = positionals;
  if (!Object.hasOwn(halves, half) || more.length > 0) {
    throw new RangeError(
      `${JSON.stringify(positionals.join(" "))} is no check, wanted subagents, consult or all`,
    );
  }
  if ([values.home, values.url, values.stub || undefined].filter((each) => each !== undefined).length > 1) {
    throw new RangeError("--home, --url and --stub each name a server, wanted one of them");
  }
  return {
    ids: halves[half],
    home: values.home,
    url: values.url,
    stub: values.stub,
    busySlot: values["busy-slot-1"],
    steer: values.steer,
    json: values.json,
  };
}

if (import.meta.main) {
  // What goes to the owner's server goes there directly: `fetch` would obey these.
  for (const name of ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"]) {
    for (const spelt of [name, name.toLowerCase()]) Deno.env.delete(spelt);
  }
  let options: Options | "help";
  try {
    options = parseOptions(Deno.args);
  } catch (error) {
    console.error(`device-check: ${describeError(error).split(". ")[0]}\n\n${help}`);
    Deno.exit(exitCodes.usage);
  }
  if (options === "help") {
    console.log(help);
    Deno.exit(exitCodes.done);
  }
  const given = options;
  Deno.exit(await endOnSignals("device-check", (signal) => main(given, signal)));
}
