// A program of the bench as a process of its own, as a role is one: a line in, a line out, stopped by the end of its input.

import { linesOf } from "./lines.ts";

export interface LineProcess extends AsyncDisposable {
  readonly pid: number;
  /** The line that answers this one. Throws where the process ended instead. */
  ask(line: string): Promise<string>;
}

/** `args`: everything after the name of the Deno binary. */
export function startLineProcess(args: string[]): LineProcess {
  const child = new Deno.Command(Deno.execPath(), {
    args,
    stdin: "piped",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  const orders = child.stdin.getWriter();
  const answers = linesOf(child.stdout);
  return {
    pid: child.pid,
    async ask(line) {
      await orders.write(new TextEncoder().encode(`${line}\n`));
      const { done, value } = await answers.next();
      if (done) throw new Error(`the process of ${args.at(-2)} ended before it answered`);
      return value;
    },
    async [Symbol.asyncDispose]() {
      await orders.close();
      await child.status;
      await answers.return(undefined);
    },
  };
}
