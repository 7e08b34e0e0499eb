// The environment that a launcher is started in, turned against its roles: proxies, telemetry, foreign certificate authorities, runtime
// options, odd time zones and languages. The roles are the real ones under the real launcher; what leaves goes where the owner's file says
// and nowhere else. https is tried for real: with a certificate that nobody vouches for, one for another address, and a sound one.

import { assert, assertEquals } from "@std/assert";
import { verifyAudit } from "../../core/audit/verify.ts";
import type { HomePaths } from "../../core/home.ts";
import { type TurnEvent, turnOutcomeSchema } from "../../core/protocol/loop.ts";
import { requestEvents } from "../../core/wire/client.ts";
import { startConsultEndpoint } from "../../tools/stubs/consult_endpoint.ts";
import { startModelStub } from "../../tools/stubs/model.ts";
import { allowAlways, decisions, readRecords } from "../support/broker_rig.ts";
import { tempHome } from "../support/temp_home.ts";
import { selfSigned } from "./certificate.ts";
import { callBroker, startBrokerd, startLauncher } from "./roles.ts";

async function turn(paths: HomePaths, session: string, text: string) {
  const path = `/v1/sessions/${session}/turns`;
  for await (const event of requestEvents(paths.loopSocket, { method: "POST", path, body: { text } })) {
    if ((event as TurnEvent).event === "done") return turnOutcomeSchema.parse(event.data);
  }
  throw new Error("the turn's stream ended without a done event");
}

Deno.test("proxy, telemetry, certificate and runtime variables of the launcher's environment reach no role: a consult goes straight to its endpoint", async () => {
  await using endpoint = await startConsultEndpoint();
  // Whatever is sent to a proxy, a collector or a bundle server.
  await using other = await startConsultEndpoint();
  await using model = await startModelStub();
  await using home = await tempHome({
    loopdToml: `[inference]\nurl = "${model.url}"\n`,
    brokerdToml: `[consult]\nurl = "${endpoint.url}"\nmodel = "m"\nsecret = "consult"\n`,
    grantsToml: allowAlways,
    secrets: { consult: "key\n" },
  });
  const { paths } = home;
  const foreign = await selfSigned("127.0.0.1");
  await Deno.writeTextFile(`${paths.home}/foreign.pem`, foreign.cert);
  const elsewhere = new URL(other.url).origin;
  const hostile = {
    HTTP_PROXY: elsewhere,
    http_proxy: elsewhere,
    HTTPS_PROXY: elsewhere,
    https_proxy: elsewhere,
    ALL_PROXY: elsewhere,
    all_proxy: elsewhere,
    NO_PROXY: "",
    no_proxy: "",
    NODE_USE_ENV_PROXY: "1",
    OTEL_EXPORTER_OTLP_ENDPOINT: elsewhere,
    OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
    OTEL_BSP_SCHEDULE_DELAY: "1",
    OTEL_BLRP_SCHEDULE_DELAY: "1",
    NODE_OPTIONS: "--max-http-header-size=1048576",
    NODE_EXTRA_CA_CERTS: `${paths.home}/foreign.pem`,
    NODE_TLS_REJECT_UNAUTHORIZED: "0",
    SSL_CERT_FILE: `${paths.home}/foreign.pem`,
    SSLKEYLOGFILE: `${paths.home}/keylog`,
    DENO_CERT: `${paths.home}/foreign.pem`,
    DENO_AUTH_TOKENS: `token@${new URL(elsewhere).host}`,
    DENO_TLS_CA_STORE: "system",
    TZ: "Pacific/Chatham",
    LANG: "tr_TR.UTF-8",
    LC_ALL: "ar_EG.UTF-8",
    LC_NUMERIC: "de_DE.UTF-8",
    LD_PRELOAD: "",
    BOXMAKER_HOME: "/nowhere",
  };
  {
    await using up = await startLauncher(paths, hostile);
    for (const [role, pid] of Object.entries(up.pids)) {
      const names = (await Deno.readTextFile(`/proc/${pid}/environ`)).split("\0").slice(0, -1)
        .map((entry) => entry.split("=")[0]).filter((name) => name !== "NPM_CONFIG_REGISTRY").sort();
      assertEquals([role, ...names], [
        role,
        "DENO_AUDIT_PERMISSIONS",
        // A private authority is the owner's own word, and the one variable of these that is passed on.
        "DENO_CERT",
        "DENO_DIR",
        "DENO_NO_UPDATE_CHECK",
        "NO_COLOR",
      ]);
    }
    for (let asked = 1; asked <= 3; asked++) {
      const outcome = await turn(paths, "chat-a", `ask the cloud: Question I ${asked} İ?`);
      assertEquals([outcome.status, outcome.calls[0].status], ["completed", "ok"]);
    }
    // The odd time zone is the owner's, too: loopd tells the model his time, and records stay in UTC.
    assertEquals((await turn(paths, "chat-a", "what time is it")).status, "completed");
    const { code, stderr } = await up.stop();
    assertEquals([code, stderr], [0, ""]);
  }
  assertEquals([endpoint.requests.length, other.connections], [3, 0]);
  const bodies = endpoint.requests.map(({ body }) => new TextDecoder().decode(body));
  assertEquals(
    bodies.map((body) => JSON.parse(body)),
    [1, 2, 3].map((asked) => ({
      model: "m",
      temperature: 0.6,
      messages: [{ role: "user", content: `Question I ${asked} İ?` }],
    })),
  );
  const records = await readRecords(paths.audit);
  assert(records.every(({ time }) => /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/.test(time)));
  assertEquals((await verifyAudit(paths.audit)).exit, 0);
  // The control: the other recorder does record.
  await (await fetch(other.url, { method: "POST", body: "{}" })).text();
  assertEquals(other.requests.length, 1);
});

/** An https server that keeps what it reads, decrypted, and answers. */
function secureEndpoint(certificate: { cert: string; key: string }) {
  const received: string[] = [];
  const listener = Deno.listenTls({ hostname: "127.0.0.1", port: 0, ...certificate });
  const serving = (async () => {
    for await (const connection of listener) {
      using peer = connection;
      try {
        const bytes = new Uint8Array(65_536);
        let text = "";
        while (!text.includes('"}]}')) {
          const count = await peer.read(bytes);
          if (count === null) break;
          text += new TextDecoder().decode(bytes.subarray(0, count));
        }
        received.push(text);
        const body = '{"choices":[{"message":{"content":"Four."}}]}';
        await peer.write(
          new TextEncoder().encode(`HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n${body}`),
        );
      } catch {
        // The handshake failed: nothing was read.
      }
    }
  })();
  return {
    url: `https://127.0.0.1:${listener.addr.port}/v1`,
    received,
    async [Symbol.asyncDispose]() {
      listener.close();
      await serving;
    },
  };
}

Deno.test("C5 an https endpoint gets the request only under a certificate that is vouched for and names it", async () => {
  const right = await selfSigned("127.0.0.1");
  const wrong = await selfSigned("127.0.0.2");
  const cases = [
    { name: "nobody vouches for it", served: right, trusted: undefined, wanted: "consult-unreachable" },
    { name: "another authority is trusted", served: right, trusted: wrong, wanted: "consult-unreachable" },
    { name: "it names another address", served: wrong, trusted: wrong, wanted: "consult-unreachable" },
    { name: "it is sound", served: right, trusted: right, wanted: "ok" },
  ];
  for (const { name, served, trusted, wanted } of cases) {
    await using endpoint = secureEndpoint(served);
    await using home = await tempHome({
      brokerdToml: `[consult]\nurl = "${endpoint.url}"\nmodel = "m"\nsecret = "consult"\n`,
      grantsToml: allowAlways,
      secrets: { consult: "marked-key-0123456789\n" },
    });
    const path = `${home.paths.home}/authority.pem`;
    if (trusted !== undefined) await Deno.writeTextFile(path, trusted.cert);
    await using brokerd = await startBrokerd(home.paths, {
      env: trusted === undefined ? {} : { DENO_CERT: path },
    });
    const answer = await callBroker(home.paths, "chat-a", 1);
    assertEquals([name, answer.status === "error" ? answer.code : answer.status], [name, wanted]);
    assertEquals(endpoint.received.length, wanted === "ok" ? 1 : 0);
    if (wanted === "ok") {
      const [decision] = decisions(await readRecords(home.paths.audit));
      assert(endpoint.received[0].endsWith(`\r\n\r\n${decision.body}`));
    }
    await brokerd.stop();
  }
});
