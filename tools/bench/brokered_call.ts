// What one brokered call costs, beside the least that a hop and an fsync cost.

import { fileURLToPath } from "node:url";
import { type Around, type Bench, type Findings, median, ratio, sampled } from "./bench.ts";
import { benchHome, startRoles } from "./bench_home.ts";
import { Caller, deniedCall } from "./broker_load.ts";
import { linesOf } from "./lines.ts";

export const brokeredCall: Bench = {
  name: "brokered-call",
  about:
    "One denied consult on broker.sock, on a connection that is kept: parsed, decided, its record encoded, hashed, written and synced, " +
    "answered. Beside it, in turns: a bare Unix socket that sends back each byte, Deno's own HTTP on such a socket, and one append of as many bytes " +
    "with fdatasync. Bounded by one hop, the HTTP around it and one fsync.",
  run,
};

async function run({ quick }: Around): Promise<Findings> {
  await using home = await benchHome("http://127.0.0.1:9", {
    brokerdToml: `[consult]\nurl = "http://127.0.0.1:9/v1"\nmodel = "big"\nsecret = "consult"\n`,
  });
  await using _roles = await startRoles(home);
  await using echo = await startEcho(home.paths.home);
  using broker = await Caller.connect(home.paths.brokerSocket);
  using http = await Caller.connect(echo.httpPath);
  using bytes = await Deno.connect({ transport: "unix", path: echo.bytesPath });
  using file = await Deno.open(`${home.paths.home}/append`, { append: true, create: true });
  const line = new Uint8Array(600).fill(0x61);
  const buffer = new Uint8Array(4_096);

  const taken = { call: [], http: [], bytes: [], append: [] } as Record<string, number[]>;
  for (let round = 0; round < (quick ? 300 : 3_000); round++) {
    const body = deniedCall("chat-one");
    taken.call.push(await timed(() => broker.ask("/v1/call", body)));
    taken.http.push(await timed(() => http.ask("/v1/call", body)));
    taken.bytes.push(
      await timed(async () => {
        await bytes.write(line);
        for (let got = 0; got < line.length;) got += (await bytes.read(buffer)) ?? 0;
      }),
    );
    taken.append.push(
      await timed(async () => {
        file.writeSync(line);
        await file.syncData();
      }),
    );
  }
  const least = median(taken.bytes) + median(taken.append);
  return {
    figures: [
      sampled("brokered-call.call", "one denied call: decide, record, fsync, answer", taken.call),
      sampled("brokered-call.echo", "bare Unix-socket echo", taken.bytes),
      sampled("brokered-call.http", "bare HTTP on a Unix socket", taken.http),
      sampled("brokered-call.append", "bare append and fdatasync", taken.append),
      ratio("brokered-call.ratio", "the call, times echo and append", {
        value: median(taken.call),
        over: least,
      }),
      ratio("brokered-call.http-ratio", "the call, times HTTP and append", {
        value: median(taken.call),
        over: median(taken.http) + median(taken.append),
      }),
    ],
  };
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  await work();
  return performance.now() - began;
}

async function startEcho(directory: string) {
  const bytesPath = `${directory}/bytes.sock`;
  const httpPath = `${directory}/http.sock`;
  const child = new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "-q",
      "-A",
      fileURLToPath(new URL("./echo_server.ts", import.meta.url)),
      bytesPath,
      httpPath,
    ],
    stdin: "piped",
    stdout: "piped",
  }).spawn();
  const lines = linesOf(child.stdout);
  await lines.next();
  return {
    bytesPath,
    httpPath,
    async [Symbol.asyncDispose]() {
      await child.stdin.close();
      await child.status;
      await lines.return(undefined);
    },
  };
}
