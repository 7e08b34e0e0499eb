// `deno task chat`: a conversation, whatever runs already. Starts the roles where none do, a practice model where loopd.toml names no
// server, a home where there is none; at the end it stops exactly what it started.

import { join } from "node:path";
import { loadLoopdConfig } from "../../core/config/loopd_toml.ts";
import { exitCodes, UsageError } from "../../core/errors.ts";
import { chooseHome, type HomePaths, homePaths, resolveHome } from "../../core/home.ts";
import { runBx, takeDirectories } from "./command.ts";
import { type OwnEnvironment, ownEnvironment, personEnvironment } from "./environment.ts";
import { makeHome } from "./init.ts";
import { lockHolder } from "./lock.ts";
import { denoArguments, plan } from "./plan.ts";
import { printFaults } from "./program.ts";
import { ownRoot } from "./root.ts";
import type { LaunchEvent, Supervisor } from "./supervise.ts";
import { up } from "./up.ts";

const help = `A conversation with the model. Starts what does not run yet, and stops it again at the end.

  deno task chat [ID] [--home DIR]

  ID          an existing session; else a new one begins
  --home DIR  the home; else $BOXMAKER_HOME, else $HOME/.boxmaker
  --help      this text

Where loopd.toml names no [inference] url, a practice model answers: it knows some phrases, and says which at "help".`;

/** The practice model says its address on its first line; a first start may have packages to fetch. */
const practiceStartMsMax = 60_000;

async function main(args: string[]): Promise<number> {
  if (args.includes("--help") || args.includes("-h")) {
    console.log(help);
    return exitCodes.done;
  }
  const own = ownEnvironment();
  const { home, rest } = takeDirectories(args, own);
  const paths = await existingHome(chooseHome({ flag: home, env: own }));
  const bx = () => runBx(["chat", "--home", paths.home, ...rest], { root: ownRoot, own });
  if (lockHolder(paths) !== undefined) return await bx();

  const loopd = loadLoopdConfig(paths);
  await using practice = "value" in loopd && loopd.value.inference === undefined
    ? await startPractice(own)
    : undefined;
  const supervisor = await up({ paths, own, inferenceUrl: practice?.url, onEvent: sayTrouble });
  if ("faults" in supervisor) throw new UsageError(supervisor.faults);
  if (practice !== undefined) {
    console.log(
      `loopd.toml names no [inference] url: a practice model answers, not a real one. Type "help" for what it knows.`,
    );
  }
  return await converse(supervisor, bx);
}

/** The conversation, then the end of both roles; theirs ends it too. */
async function converse(supervisor: Supervisor, bx: () => Promise<number>): Promise<number> {
  const hangUp = () => void supervisor.stop();
  Deno.addSignalListener("SIGTERM", hangUp);
  const first = await Promise.race([supervisor.ready, supervisor.ended]);
  if (first !== undefined) return first;
  const code = await bx();
  await supervisor.stop();
  Deno.removeSignalListener("SIGTERM", hangUp);
  return code;
}

/** A home that does not exist is made, and said; one that exists is never touched here. */
async function existingHome(home: string): Promise<HomePaths> {
  try {
    await Deno.lstat(home);
    return homePaths(resolveHome(home));
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
  const made = await makeHome(home);
  if ("faults" in made) throw new UsageError(made.faults);
  console.log(`There was no home yet: made ${made.paths.home} with commented files to edit.`);
  return made.paths;
}

interface Practice extends AsyncDisposable {
  readonly url: string;
}

async function startPractice(own: OwnEnvironment): Promise<Practice> {
  const child = new Deno.Command(Deno.execPath(), {
    args: [
      ...denoArguments(ownRoot),
      // The practice model needs no home, and is given none.
      ...plan("practice", { paths: homePaths("/") }),
      join(ownRoot, "tools", "stubs", "model.ts"),
      "--lifeline",
    ],
    clearEnv: true,
    env: personEnvironment(own),
    stdin: "piped",
    stdout: "piped",
    stderr: "inherit",
    // Ctrl-C in the terminal is for the conversation.
    detached: true,
  }).spawn();
  const lines = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  const timer = setTimeout(() => child.kill("SIGKILL"), practiceStartMsMax);
  let text = "";
  let url: string | undefined;
  while (url === undefined) {
    const { value, done } = await lines.read();
    if (done) break;
    text += value;
    url = /(http:\/\/127\.0\.0\.1:\d+)\s/.exec(text)?.[1];
  }
  clearTimeout(timer);
  if (url === undefined) throw new Error("the practice model did not start");
  // Its reports are for those who watch it; a full pipe would stop it.
  const drained = (async () => {
    while (!(await lines.read()).done);
  })();
  return {
    url,
    async [Symbol.asyncDispose]() {
      await child.stdin.close().catch(() => {});
      await child.status;
      await drained;
    },
  };
}

/** Between a person and the model stands only what went wrong. */
function sayTrouble(event: LaunchEvent): void {
  if (event.event !== "exited" || event.backInMs === undefined) return;
  console.error(`[${event.role} ended with code ${event.code} and is started again]`);
}

if (import.meta.main) {
  try {
    Deno.exit(await main(Deno.args));
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    printFaults(error.faults);
    Deno.exit(exitCodes.usage);
  }
}
