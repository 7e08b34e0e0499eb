// Spans from the real role under its real flags to a collector, through the program that the owner starts: nothing of what was said is in
// them, the sender reaches its one host and nothing else, and each span arrives once.

import { assert, assertEquals } from "@std/assert";
import { requestEvents } from "../../core/wire/client.ts";
import { makePrivateHome } from "../../tools/demo/private_home.ts";
import { startRoles } from "../../tools/demo/running_roles.ts";
import { ownEnvironment, personEnvironment } from "../../tools/launch/environment.ts";
import { permissionReports } from "../../tools/launch/permissions.ts";
import { ownRoot } from "../../tools/launch/root.ts";
import { startConsultEndpoint } from "../../tools/stubs/consult_endpoint.ts";
import { startModelStub } from "../../tools/stubs/model.ts";

const own = ownEnvironment();

async function exportTrace(...words: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", "-q", "--no-prompt", "--frozen", "--config", `${ownRoot}/deno.json`],
      ...["--allow-read", "--allow-run", "--allow-env", `${ownRoot}/tools/export_trace/main.ts`, ...words],
    ],
    clearEnv: true,
    env: personEnvironment(own),
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).output();
  return { code, stdout: new TextDecoder().decode(stdout), stderr: new TextDecoder().decode(stderr) };
}

Deno.test("loopd writes spans under its own flags where the owner turned them on, and export-trace brings each to the collector once, without a word of what was said", async () => {
  const arrived: string[] = [];
  await using collector = Deno.serve(
    { port: 0, hostname: "127.0.0.1", onListen: () => {} },
    async (request) => {
      arrived.push(await request.text());
      return new Response("{}");
    },
  );
  const to = `http://127.0.0.1:${collector.addr.port}`;
  await using model = await startModelStub();
  await using cloud = await startConsultEndpoint({
    behaviour: { kind: "answer", content: "PLANTED answer" },
  });
  await using home = await makePrivateHome({
    loopdToml: `[inference]\nurl = "${model.url}"\n[trace]\nenabled = true\n`,
    brokerdToml: `[consult]\nurl = "${cloud.url}"\nmodel = "practice-cloud"\nsecret = "consult"\n`,
    grantsToml: `[[grant]]\ntool = "consult"\nmax_taint = "private"\n`,
    secrets: { consult: "practice-key" },
  }, { prefix: "bx-" });
  const { paths } = home;
  const say = async (text: string) => {
    const path = "/v1/sessions/chat-a/turns";
    for await (const { event } of requestEvents(paths.loopSocket, { method: "POST", path, body: { text } })) {
      if (event === "done") return;
    }
  };
  {
    await using _roles = await startRoles(paths, { own, signal: new AbortController().signal });
    await say("delegate: ask the cloud: PLANTED question");
    await say("ask the cloud: PLANTED again");
  }
  const loopd = (await permissionReports(paths)).find(({ role }) => role === "loopd")!;
  assertEquals(loopd.denied, []);
  assert(
    loopd.granted.some(({ permission, value, count }) =>
      permission === "write" && value === paths.trace && count > 0
    ),
  );

  const first = await exportTrace("--to", to, "--home", paths.home);
  assertEquals([first.code, first.stderr], [0, ""]);
  const again = await exportTrace("--to", to, "--home", paths.home, "--json");
  assertEquals([again.code, JSON.parse(again.stdout).lines], [0, 0]);

  const spans = arrived.flatMap((body) => JSON.parse(body).resourceSpans[0].scopeSpans[0].spans);
  assertEquals(new Set(spans.map(({ spanId }) => spanId)).size, spans.length);
  const names = Map.groupBy(spans, ({ name }) => name);
  assertEquals([...names].map(([name, of]) => `${name} ${of.length}`).sort(), [
    "call 3",
    "consult 2",
    "inference 6",
    "turn 3",
  ]);
  assertEquals(arrived.join("").includes("PLANTED"), false);

  const nobody = await exportTrace("--to", "http://127.0.0.1:1", "--home", paths.home);
  assertEquals([nobody.code, nobody.stderr.includes("127.0.0.1:1 does not answer")], [1, true]);
});
