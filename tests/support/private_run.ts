// Runs a program that promises to leave no trace, in surroundings of its own: a temporary directory, a HOME and an owner's home that
// nobody else uses. Afterwards it looks for traces: files, processes, changes in the owner's home.

import { assertEquals } from "@std/assert";
import { createHash } from "node:crypto";
import { ownEnvironment, personEnvironment } from "../../tools/launch/environment.ts";
import { makeHome } from "../../tools/launch/init.ts";
import { ownRoot } from "../../tools/launch/root.ts";

export interface RunOutput {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  /** The last line of stdout as JSON; `undefined` where it is none. */
  // deno-lint-ignore no-explicit-any -- what stands in it is what the test asserts
  readonly last: any;
}

export interface Started {
  /** Resolves once stdout holds the text. */
  until(text: string): Promise<void>;
  kill(signal: Deno.Signal): void;
  ended(): Promise<{ code: number; stdout: string; stderr: string }>;
}

export interface Surroundings {
  /** The owner's home, which nothing may change. */
  readonly home: string;
  start(program: string, words: readonly string[]): Started;
  run(program: string, words: readonly string[]): Promise<RunOutput>;
}

export async function withoutTrace(
  body: (surroundings: Surroundings) => Promise<void>,
  { loopdToml, secrets = {} }: { loopdToml?: string; secrets?: Readonly<Record<string, string>> } = {},
): Promise<void> {
  const place = await Deno.realPath(await Deno.makeTempDir({ prefix: "bxt-" }));
  try {
    const temporary = `${place}/t`;
    const home = `${place}/.boxmaker`;
    await Deno.mkdir(temporary);
    await makeHome(home);
    await Deno.writeTextFile(`${home}/memory/notes.md`, "Only the owner wrote this.\n");
    if (loopdToml !== undefined) await Deno.writeTextFile(`${home}/loopd.toml`, loopdToml);
    for (const [name, value] of Object.entries(secrets)) {
      await Deno.writeTextFile(`${home}/secrets/${name}`, value, { mode: 0o600 });
    }
    const before = await treeHash(home);
    const start = (program: string, words: readonly string[]) =>
      startProgram(program, words, { TMPDIR: temporary, HOME: place });
    await body({
      home,
      start,
      async run(program, words) {
        const output = await start(program, words).ended();
        return { ...output, last: parsed(output.stdout.trimEnd().split("\n").at(-1) ?? "") };
      },
    });
    assertEquals(await namesIn(temporary), [], "something was left in the temporary directory");
    assertEquals(await treeHash(home), before, "the owner's home was changed");
    assertEquals(await processesNaming(temporary), [], "a process was left");
  } finally {
    await Deno.remove(place, { recursive: true });
  }
}

function startProgram(program: string, words: readonly string[], env: Record<string, string>): Started {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-q", "--no-prompt", "--frozen", "-A", program, ...words],
    cwd: ownRoot,
    clearEnv: true,
    env: { ...personEnvironment(ownEnvironment()), ...env },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  let stdout = "";
  let look = () => {};
  const reading = (async () => {
    for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) {
      stdout += text;
      look();
    }
    look();
  })();
  const complaining = new Response(child.stderr).text();
  return {
    async until(text) {
      const found = Promise.withResolvers<void>();
      look = () => {
        if (stdout.includes(text)) found.resolve();
      };
      look();
      reading.then(() => found.reject(new Error(`it ended before it printed ${JSON.stringify(text)}`)));
      await found.promise;
    },
    kill: (signal) => child.kill(signal),
    async ended() {
      const [{ code }, stderr] = await Promise.all([child.status, complaining, reading]);
      return { code, stdout, stderr };
    },
  };
}

/** Names, modes and contents of everything below a directory. */
async function treeHash(directory: string): Promise<string> {
  const hash = createHash("sha256");
  for (const name of await namesIn(directory)) {
    const path = `${directory}/${name}`;
    const { isDirectory, mode } = await Deno.lstat(path);
    hash.update(`${name} ${mode} ${isDirectory ? await treeHash(path) : ""}\n`);
    if (!isDirectory) hash.update(await Deno.readFile(path));
  }
  return hash.digest("hex");
}

async function namesIn(directory: string): Promise<string[]> {
  return (await Array.fromAsync(Deno.readDir(directory))).map(({ name }) => name).sort();
}

/** Command lines that name the directory, as every process of a home does. */
async function processesNaming(directory: string): Promise<string[]> {
  const { stdout } = await new Deno.Command("ps", { args: ["-A", "-ww", "-o", "args="], stdin: "null" })
    .output();
  return new TextDecoder().decode(stdout).split("\n").filter((line) => line.includes(directory));
}

function parsed(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}
