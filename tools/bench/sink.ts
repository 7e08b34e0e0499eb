// A consult endpoint that answers at once, and what asking it costs whoever asks without a broker.

import { fileURLToPath } from "node:url";
import { linesOf } from "./lines.ts";

export interface Sink extends AsyncDisposable {
  readonly url: string;
  readonly asked: number;
}

const completion = JSON.stringify({
  model: "big",
  choices: [{ index: 0, message: { role: "assistant", content: "Four." }, finish_reason: "stop" }],
});

export function startSink(): Sink {
  let asked = 0;
  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, async (request) => {
    await request.bytes();
    asked++;
    return new Response(completion, { headers: { "content-type": "application/json" } });
  });
  return {
    url: `http://127.0.0.1:${server.addr.port}/v1/chat/completions`,
    get asked() {
      return asked;
    },
    async [Symbol.asyncDispose]() {
      await server.shutdown();
    },
  };
}

export interface BareAsker extends AsyncDisposable {
  /** Milliseconds of one POST on a connection of its own, as brokerd sends it. */
  ask(question: string): Promise<number>;
}

export function startBareAsker(url: string): BareAsker {
  const child = new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", "-q", "--no-prompt", "--cached-only", `--allow-net=${new URL(url).host}`],
      fileURLToPath(new URL("./bare_ask_loop.ts", import.meta.url)),
      url,
    ],
    stdin: "piped",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  const questions = child.stdin.getWriter();
  const answers = linesOf(child.stdout);
  return {
    async ask(question) {
      await questions.write(new TextEncoder().encode(`${question}\n`));
      const { done, value } = await answers.next();
      if (done) throw new Error("the bare asker ended");
      return Number(value);
    },
    async [Symbol.asyncDispose]() {
      await questions.close();
      await child.status;
      await answers.return(undefined);
    },
  };
}
