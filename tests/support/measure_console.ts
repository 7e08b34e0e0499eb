// How heavy the console's pages are and how soon they show something, before a home with many sessions and a long audit log. A program:
//   deno run -A tests/support/measure_console.ts [SESSIONS [RECORDS]]
// It starts real roles on a home of its own, opens each page in Chromium, and prints a line for each; nothing is left behind.

import { requestJson } from "../../core/wire/client.ts";
import { makePrivateHome } from "../../tools/demo/private_home.ts";
import { startRoles } from "../../tools/demo/running_roles.ts";
import { ownEnvironment } from "../../tools/launch/environment.ts";
import { startModelStub } from "../../tools/stubs/model.ts";
import { startBrowser } from "./browser.ts";
import { startConsole } from "./console_rig.ts";
import { writeAudit, writeSessions } from "./large_home.ts";

const loadsOfEach = 7;
/** What this browser takes on this machine to show anything at all. */
const barePage = '<!doctype html><title>bare</title><p id="content">word';

async function main([sessions = "10000", records = "1000000"]: string[]): Promise<void> {
  await using model = await startModelStub();
  await using home = await makePrivateHome({
    loopdToml: `[clock]\ntime_zone = "UTC"\n[inference]\nurl = "${model.url}"\n`,
    brokerdToml: "",
    grantsToml: "",
    secrets: {},
  }, { prefix: "bx-" });
  const { paths } = home;
  await timed(`${sessions} sessions written`, () => writeSessions(paths, Number(sessions)));
  await timed(`${records} audit records written`, () => writeAudit(paths, Number(records)));
  await using _roles = await timed(
    "roles up",
    () => startRoles(paths, { own: ownEnvironment(), signal: new AbortController().signal }),
  );
  await using console_ = await startConsole(paths);
  await using browser = await startBrowser();
  const page = await browser.newPage();
  await page.goto(console_.address);
  await page.waitForURL("**/now");
  const base = page.url().slice(0, -"/now".length);
  const { seq } = (await requestJson(paths.ownerSocket, { method: "GET", path: "/v1/audit/head" })).body as {
    seq: number;
  };
  const half = Math.floor(seq / 2);
  const list =
    (await requestJson(paths.loopSocket, { method: "GET", path: "/v1/sessions?limit=100&parent=" }))
      .body as { sessions: { session: string; children: number }[]; after: string };
  const parent = list.sessions.find(({ children }) => children > 0)?.session ?? list.sessions[0].session;
  const addresses = [
    "/now",
    "/sessions",
    `/sessions?after=${list.after}`,
    `/sessions/${parent}`,
    "/consults",
    `/consults?before=${half}`,
    `/consults?session=chat-00000002`,
    `/consults/${(await decisionBefore(paths.ownerSocket, half))}`,
    "/approvals",
    "/record",
    `/record?before=${half}`,
    `/record/${half}`,
    "/roles",
  ];
  // The least of several is what the work itself takes; the median is what it took beside whatever else this machine did.
  console.log(
    "page".padEnd(38),
    ...["bytes", "first answer", "answer least", "median", "content least", "median"].map((name) =>
      name.padStart(13)
    ),
  );
  await using bare = Deno.serve(
    { hostname: "127.0.0.1", port: 0, onListen: () => {} },
    () => new Response(barePage, { headers: { "content-type": "text/html" } }),
  );
  const bareAddress = `http://127.0.0.1:${bare.addr.port}/`;
  for (const address of [...addresses, bareAddress]) {
    const loads: number[] = [];
    const paints: number[] = [];
    let bytes = 0;
    for (let load = 0; load < loadsOfEach; load++) {
      // From one of the console's own pages, as a person goes: its opener policy has Chromium start another process for who comes from elsewhere.
      await page.goto(address === bareAddress ? "about:blank" : `${base}/approvals`);
      await page.goto(address === bareAddress ? address : base + address);
      await page.waitForSelector("#content");
      const { answered, weight, painted } = await page.evaluate(timesScript) as {
        answered: number;
        weight: number;
        painted: number;
      };
      loads.push(answered);
      paints.push(painted);
      bytes = weight;
    }
    console.log(
      (address === bareAddress ? "beside it: a page of one word" : address).padEnd(38),
      String(bytes).padStart(13),
      ...[loads[0], Math.min(...loads), median(loads), Math.min(...paints), median(paints)].map((ms) =>
        `${ms.toFixed(0)} ms`.padStart(13)
      ),
    );
  }
  if (browser.complaints.length > 0) console.log("complaints:", browser.complaints);
}

/** Runs in the page; the first paint may be a frame away. */
const timesScript = `new Promise((resolve) => {
  const look = () => {
    const [navigation] = performance.getEntriesByType("navigation");
    const [paint] = performance.getEntriesByName("first-contentful-paint");
    if (paint === undefined || navigation.responseEnd === 0) return requestAnimationFrame(look);
    resolve({ answered: navigation.responseEnd, weight: navigation.decodedBodySize, painted: paint.startTime });
  };
  look();
})`;

async function decisionBefore(ownerSocket: string, seq: number): Promise<number> {
  const path = `/v1/audit?kind=decision&limit=1&before=${seq}`;
  const { records } = (await requestJson(ownerSocket, { method: "GET", path })).body as {
    records: { seq: number }[];
  };
  return records[0].seq;
}

async function timed<T>(what: string, work: () => Promise<T>): Promise<T> {
  const startedMs = performance.now();
  const result = await work();
  console.log(`${what} in ${((performance.now() - startedMs) / 1000).toFixed(1)} s`);
  return result;
}

function median(values: number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
}

if (import.meta.main) await main(Deno.args);
