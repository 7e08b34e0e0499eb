// The floor loop as a process of its own, as loopd is one: started, fed with logs to converse on, stopped.

import { fileURLToPath } from "node:url";
import { startLineProcess } from "./line_process.ts";

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
  const loop = startLineProcess(floorArguments(url, directory));
  return {
    pid: loop.pid,
    converse: async (logPath) => void await loop.ask(logPath),
    [Symbol.asyncDispose]: () => loop[Symbol.asyncDispose](),
  };
}
