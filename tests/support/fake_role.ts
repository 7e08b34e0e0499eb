// A role in its smallest form, for tests of the launcher: says that it serves, ends when its stdin does. What else it should do stands in
// `fake.txt` of the one directory that its flags let it read (memory for loopd, audit for brokerd): `exit N`, or `deaf` to everything
// but SIGKILL.

const home = Deno.args[Deno.args.indexOf("--home") + 1];

async function readOrder(): Promise<string> {
  for (const directory of ["memory", "audit"]) {
    try {
      return (await Deno.readTextFile(`${home}/${directory}/fake.txt`)).trim();
    } catch {
      // The other role's directory, or no order.
    }
  }
  return "";
}

const order = await readOrder();
if (order.startsWith("exit ")) Deno.exit(Number(order.slice("exit ".length)));
if (order === "deaf") {
  Deno.addSignalListener("SIGTERM", () => console.log(JSON.stringify({ event: "terminated" })));
  setInterval(() => {}, 60_000);
}
console.log(JSON.stringify({ event: "ready" }));
console.log("a line that is no JSON");
for await (const _ of Deno.stdin.readable);
