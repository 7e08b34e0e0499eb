// `deno task init`: a home in which both roles can be started, with every key explained. Grants nothing, reaches nothing, and never
// overwrites: what exists stays as it is.

import { exitCodes, type Fault, UsageError } from "../../core/errors.ts";
import { homeFaults, type HomePaths, homePaths, pathFaults, resolveHome } from "../../core/home.ts";
import { homeDirectories } from "./directories.ts";
import { type Given, runProgram } from "./program.ts";

const help = `Makes a home: three commented files, the directories, an empty memory. Overwrites nothing.

  deno task init [--home DIR]

  --home DIR  the home; else $BOXMAKER_HOME, else $HOME/.boxmaker
  --help      this text`;

const loopdToml =
  `# What thinks: the model's server, the slots, sessions and scheduled work. Read when loopd starts.
# A key that is commented out shows its default; an unknown key is an error that says what is known.

[inference]
# llama-server, or any server with its /v1/chat/completions, id_slot and timings. Without a url, \`deno task chat\` brings a practice model.
# url = "http://127.0.0.1:8080"
# Another device's server sees everything the model reads: it is refused unless this is true.
# remote = false
# model = "local"
# Name of a file in secrets/ with the key of a protected server.
# secret = "inference"
# Longest silence on the stream; prompt progress and thinking count as life.
# liveness_ms = 120000
# Bound of one model message, in model tokens.
# max_tokens = 8192
# temperature = 0.7
# How the model's messages go back to it: "raw" as it wrote them, which keeps its prompt cache exact; "structured" for the server to render
# again; "auto" asks the server's template whether raw can be.
# history = "auto"

[slots]
# The live conversation keeps its prompt cache on main; children and scheduled work run on background. Start llama-server with -np 3.
# main = 0
# background = 2

[session]
# Class of a new session: "public", "private" or "secret".
# class = "private"
# tool_iterations = 16
# An unfinished child older than this is not resumed.
# resume_hours = 24

[tools]
# result_chars = 16000

[compact]
# threshold_tokens = 24000
# summary_chars = 4000

[broker]
# Never below [consult] timeout_ms in brokerd.toml.
# timeout_ms = 200000

[clock]
# Default: this device's.
# time_zone = "Europe/Berlin"

[trace]
# Times and labels of turns, requests and calls, never their text, as OpenTelemetry spans in trace/; deno task export-trace sends them.
# enabled = false

# [heartbeat]
# every_minutes = 30
# prompt = "Is there anything in the notes that is due?"

# [[cron]]
# name = "morning"           # its session is job-morning
# schedule = "0 7 * * *"     # five fields, or six with seconds first
# task = "Say what today's notes ask for."
`;

const brokerdToml = `# What may leave this device, and how. Read when brokerd starts.
# Without [consult] every call of the consult tool is denied, and that is how a new home begins.

# [consult]
# url = "https://api.example.com/v1/chat/completions"   # https, or http on this device
# model = "name-of-the-model"
# secret = "consult"          # name of a file in secrets/ that holds the key alone: chmod 600
# temperature = 0.6           # at most 0.6
# timeout_ms = 180000
# reply_bytes_max = 1048576

[approvals]
# How long a call with mode = "ask" waits for you.
# expire_minutes = 60

# [honcho]
# url = "http://127.0.0.1:8000"
# secret = "honcho"
# timeout_ms = 30000
`;

const grantsToml =
  `# What each brokered tool may do. No grant, no call. The first grant in the file that admits a session's label decides.
# Read when brokerd starts and on: deno task bx grants reload

# [[grant]]
# tool = "consult"
# max_taint = "private"       # highest class of session that may use it
# mode = "ask"                # you see the exact bytes first; "allow" sends them at once
# per_day = 20
# result_class = "private"    # class of the answer
# untrusted = true            # the answer makes its session untrusted
# allow_untrusted = false     # may an untrusted session use it
# sessions = ["chat-*"]       # matched against the root session's id
`;

export interface Made {
  /** In the order in which they were made. */
  readonly made: string[];
  readonly kept: string[];
}

/** Makes what is missing of a home, or says why it may not. Wants the path unresolved: it need not exist. */
export async function makeHome(home: string): Promise<Made & { paths: HomePaths } | { faults: Fault[] }> {
  const unfit = pathFaults(home);
  if (unfit.length > 0) return { faults: unfit };
  const made: string[] = [];
  const kept: string[] = [];
  await makeDirectory(home, made, kept);
  const resolved = resolveHome(home);
  const faults = homeFaults(resolved, { uid: Deno.uid() });
  if (faults.length > 0) return { faults };
  const paths = homePaths(resolved);
  for (const directory of homeDirectories(paths)) await makeDirectory(directory, made, kept);
  const files = [
    [paths.loopdToml, loopdToml],
    [paths.brokerdToml, brokerdToml],
    [paths.grantsToml, grantsToml],
    [paths.identity, ""],
    [paths.notes, ""],
  ];
  for (const [path, text] of files) await makeFile(path, text, made, kept);
  return { made, kept, paths };
}

async function makeDirectory(path: string, made: string[], kept: string[]): Promise<void> {
  try {
    if ((await Deno.stat(path)).isDirectory) {
      kept.push(path);
      return;
    }
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
  await Deno.mkdir(path, { recursive: true, mode: 0o700 });
  made.push(path);
}

async function makeFile(path: string, text: string, made: string[], kept: string[]): Promise<void> {
  try {
    await Deno.writeTextFile(path, text, { createNew: true, mode: 0o600 });
    made.push(path);
  } catch (error) {
    if (!(error instanceof Deno.errors.AlreadyExists)) throw error;
    kept.push(path);
  }
}

async function run({ home, homeWasNamed }: Given): Promise<number> {
  const result = await makeHome(home);
  if ("faults" in result) throw new UsageError(result.faults);
  for (const path of result.made) console.log(`made  ${path}`);
  for (const path of result.kept) console.log(`kept  ${path}`);
  const where = homeWasNamed ? ` --home ${result.paths.home}` : "";
  console.log(`
Next:
  deno task chat${where}    a conversation; with a practice model until [inference] names a url
  edit ${result.paths.loopdToml}    to name your model's server
  deno task up${where}      both roles, without a conversation`);
  return exitCodes.done;
}

if (import.meta.main) await runProgram({ name: "init", help, run });
