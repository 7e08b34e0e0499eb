// `deno task console` as a process: one port of this device, the two sockets that the owner's programs may reach, and the records of what roles
// used. Prints an address that works once; holds no other state than who entered.

import { parseArgs } from "node:util";
import { describeError, exitCodes } from "../../core/errors.ts";
import { homePaths } from "../../core/home.ts";
import { Access } from "./access.ts";
import { consoleApp } from "./server.ts";
import { Sources } from "./sources.ts";
import { Times } from "./text.tsx";

async function main(args: string[]): Promise<number> {
  const { values } = parseArgs({
    args,
    options: {
      home: { type: "string" },
      port: { type: "string" },
      "time-zone": { type: "string" },
      "allow-decisions": { type: "boolean" },
    },
  });
  const home = values.home;
  const port = Number(values.port);
  if (home === undefined || !home.startsWith("/") || !Number.isInteger(port)) {
    console.error("console: is started with deno task console, which gives it its home and its port");
    return exitCodes.usage;
  }
  const timeZone = values["time-zone"] ?? Intl.DateTimeFormat().resolvedOptions().timeZone;
  const allowDecisions = values["allow-decisions"] ?? false;

  // The port is known only once it is listened on, and what is answered names it.
  const app = Promise.withResolvers<ReturnType<typeof consoleApp>>();
  const stop = new AbortController();
  let server: Deno.HttpServer<Deno.NetAddr>;
  try {
    server = Deno.serve(
      { hostname: "127.0.0.1", port, signal: stop.signal, onListen: () => {} },
      async (request) => (await app.promise).fetch(request),
    );
  } catch (error) {
    if (!(error instanceof Deno.errors.AddrInUse)) throw error;
    console.error(
      `console: port ${port} is in use; choose another with --port, or any free one with --port 0`,
    );
    return exitCodes.usage;
  }
  const access = new Access(server.addr.port);
  app.resolve(consoleApp({
    access,
    sources: new Sources(homePaths(home)),
    times: new Times(timeZone),
    allowDecisions,
  }));

  console.log(`Open ${access.newAddress()}`);
  console.log(
    `It works once; Enter prints another, Ctrl-C ends the console. ${
      allowDecisions
        ? "Approvals can be decided in it."
        : "It only shows; --allow-decisions lets you decide in it."
    }`,
  );
  for (const name of ["SIGINT", "SIGTERM"] as const) Deno.addSignalListener(name, () => stop.abort());
  printAddresses(access).catch((error) => console.error(`console: ${describeError(error)}`));
  await server.finished;
  return exitCodes.done;
}

/** One more for each line that the owner types; none where nobody types. */
async function printAddresses(access: Access): Promise<void> {
  for await (const bytes of Deno.stdin.readable) {
    if (bytes.includes(0x0a)) console.log(`Open ${access.newAddress()}`);
  }
}

if (import.meta.main) Deno.exit(await main(Deno.args));
