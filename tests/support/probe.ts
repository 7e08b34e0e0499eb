// A program that tries things and says what came of each. A test runs it under exactly the flags of a role: what it can do, that role
// could do if its own code turned against its owner.

import * as http from "node:http";

export type Attempt =
  | { readonly kind: "fetch" | "import" | "read" | "write"; readonly target: string }
  | { readonly kind: "socket"; readonly target: string }
  | { readonly kind: "run" | "env" | "sys" | "ffi" };

/** `ok`, or the name of the error and its text. */
export type Outcome = string;

async function attempt(what: Attempt): Promise<void> {
  switch (what.kind) {
    case "fetch": {
      const client = Deno.createHttpClient({ http2: false, poolMaxIdlePerHost: 0 });
      try {
        await (await fetch(what.target, { client })).text();
      } finally {
        client.close();
      }
      return;
    }
    case "socket":
      return await overSocket(what.target);
    case "import":
      await import(what.target);
      return;
    case "read":
      if ((await Deno.stat(what.target)).isDirectory) { for await (const _ of Deno.readDir(what.target)); }
      else await Deno.readFile(what.target);
      return;
    case "write":
      return await Deno.writeTextFile(what.target, "probe", { append: true });
    case "run":
      await new Deno.Command(Deno.execPath(), { args: ["--version"] }).output();
      return;
    case "env":
      Deno.env.get("DENO_DIR");
      return;
    case "sys":
      Deno.hostname();
      return;
    case "ffi":
      Deno.dlopen("/lib/libc.so.6", {}).close();
  }
}

function overSocket(socketPath: string): Promise<void> {
  return new Promise((resolve, reject) => {
    http.get({ socketPath, path: "/", agent: false, headers: { connection: "close" } }, (response) => {
      response.resume();
      response.on("end", resolve);
    }).on("error", reject);
  });
}

if (import.meta.main) {
  const attempts: Attempt[] = JSON.parse(Deno.args.at(-1) ?? "[]");
  const outcomes: Outcome[] = [];
  for (const what of attempts) {
    outcomes.push(await attempt(what).then(() => "ok", (error) => `${error.name}: ${error.message}`));
  }
  console.log(JSON.stringify(outcomes));
}
