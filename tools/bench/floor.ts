// The floor loop as a process of its own, as loopd is one: started, fed with logs to converse on, stopped.

import { fileURLToPath } from "node:url";
import { linesOf } from "./lines.ts";

export interface Floor extends AsyncDisposable {
  readonly pid: number;
  /** Runs one conversation on this log, to its end. */
  converse(logPath: string): Promise<void>;
}

export const floorArguments = (url: string, directory: string): string[] => [
  "run",
  "-q",
  "--no-prompt",
  "--cached-only",
  `--allow-net=${new URL(url).host}`,
  `--allow-read=${directory}`,
  `--allow-write=${directory}`,
  fileURLToPath(new URL("./floor_loop.ts", import.meta.url)),
  url,
];

/** `directory` is all that it may read and write. */
export function startFloor(url: string, directory: string): Floor {
  const child = new Deno.Command(Deno.execPath(), {
    args: floorArguments(url, directory),
    stdin: "piped",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  const orders = child.stdin.getWriter();
  const answers = linesOf(child.stdout);
  return {
    pid: child.pid,
    async converse(logPath) {
      await orders.write(new TextEncoder().encode(`${logPath}\n`));
      const { done } = await answers.next();
      if (done) throw new Error("the floor loop ended in the middle of a conversation");
    },
    async [Symbol.asyncDispose]() {
      await orders.close();
      await child.status;
      await answers.return(undefined);
    },
  };
}
