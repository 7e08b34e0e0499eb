// The console in a real browser, before real roles: every page, what changes while it is looked at, a decision on exact bytes, hostile text,
// and whoever should not be let in.

import { assert, assertEquals, assertGreater, assertMatch, assertStringIncludes } from "@std/assert";
import * as http from "node:http";
import type { Page } from "playwright-core";
import { requestJson } from "../../core/wire/client.ts";
import type { ScriptRequest } from "../../tools/stubs/model_script.ts";
import { type Browser, otherHost, startBrowser } from "../support/browser.ts";
import { type ConsoleRig, startConsoleRig } from "../support/console_rig.ts";
import { callsTool, says } from "../support/loopd_rig.ts";

const pageBytesMax = 100_000;
const askPrivate = `[[grant]]\ntool = "consult"\nmax_taint = "private"\nmode = "ask"\n`;
/** Reorders what follows: a reader would see `invoiceexe.pdf`. */
const bidiTrick = "invoice\u202efdp.exe";
const question = `Is <b>${bidiTrick}</b> a document?`;

/** `spawn` has a child count; `consult` asks outside; `hostile` answers with what must not work; anything else is answered. */
function script({ slot, messages }: ScriptRequest) {
  const last = messages.at(-1);
  const text = JSON.stringify(last);
  if (slot === 2) return says("one two three");
  if (last?.role === "tool") return says("all done");
  if (text.includes("spawn")) return callsTool("subagent", { task: "count to three" });
  if (text.includes("consult")) return callsTool("consult", { question });
  if (text.includes("hostile")) {
    return {
      content:
        `<script>document.title = "owned"</script><img src="/x" onerror="alert(1)"> ${bidiTrick}\u0007`,
      thinking: "</pre><svg onload=alert(2)>",
    };
  }
  return says("a plain answer");
}

interface Entered {
  readonly page: Page;
  /** Address of a page of the console. */
  at(path: string): string;
}

/** Opens the printed address and waits for the first page. */
async function enter(rig: ConsoleRig, browser: Browser, address = rig.console.address): Promise<Entered> {
  const page = await browser.newPage();
  await page.goto(address);
  await page.waitForURL("**/now");
  const base = page.url().slice(0, -"/now".length);
  return { page, at: (path) => base + path };
}

/** Goes to a page and waits until it is live. */
async function open({ page, at }: Entered, path: string): Promise<Page> {
  await page.goto(at(path));
  await page.waitForSelector('#live-state[data-state="on"]');
  return page;
}

/** What is to be read there, white space as single spaces. */
async function textOf(page: Page, selector = "main"): Promise<string> {
  return (await page.locator(selector).innerText()).replaceAll(/\s+/g, " ");
}

async function decide(rig: ConsoleRig, decision: "approve" | "deny"): Promise<void> {
  const { id, bodySha256 } = await rig.nextApproval();
  await rig.owner("POST", `/v1/approvals/${id}`, { decision, bodySha256 });
}

Deno.test("B11 every page of the console shows what the roles hold, within its weight, without one breach of its policy", async () => {
  await using rig = await startConsoleRig({ script, grants: askPrivate });
  const chat = await rig.newSession();
  await rig.send(chat, "say something");
  await rig.send(chat, "spawn a count");
  const secret = await rig.newSession("secret");
  await rig.send(secret, "consult about it");
  const asked = rig.send(chat, "consult about it");
  await decide(rig, "approve");
  await asked;

  await using browser = await startBrowser();
  const entered = await enter(rig, browser);
  const { page, at } = entered;

  const now = await textOf(await open(entered, "/now"));
  for (
    const wanted of [
      "main slot 0",
      "background slot 2",
      "Nobody waits for a slot.",
      "held-subagent",
      "reachable",
      chat,
    ]
  ) {
    assertStringIncludes(now, wanted);
  }
  assertEquals(await page.locator("svg.timeline").count(), 2);
  assertGreater(await page.locator("svg.timeline .kept").count(), 1);

  const sessions = await textOf(await open(entered, "/sessions"));
  for (
    const wanted of [
      chat,
      `sub-${chat}-1`,
      secret,
      "say something",
      "count to three",
      "private, untrusted",
      "completed",
    ]
  ) {
    assertStringIncludes(sessions, wanted);
  }

  await open(entered, `/sessions/${chat}`);
  await page.locator(`#child-sub-${chat}-1 > summary`).click();
  const transcript = await textOf(page);
  for (
    const wanted of [
      "say something",
      "a plain answer",
      "subagent",
      "one two three",
      "all done",
      "turn 2",
      "% of",
    ]
  ) {
    assertStringIncludes(transcript, wanted);
  }
  // The child stands inside the call that spawned it.
  assertEquals(await page.locator(".call .child .record.user").count(), 1);

  await open(entered, "/consults");
  const consults = await textOf(page);
  assertStringIncludes(consults, 'It would have taken max_taint = "secret": it has max_taint = "private"');
  assertEquals(await page.locator(".card").count(), 2);
  const sent = rig.endpoint.requests.at(-1);
  assert(sent !== undefined);
  const sha256 = await hexSha256(sent.body);
  assertStringIncludes(consults, sha256);
  const decision = (await rig.owner("GET", "/v1/audit?kind=decision&limit=1")).body as {
    records: { seq: number }[];
  };
  await open(entered, `/consults/${decision.records[0].seq}`);
  // What is shown is the body as it left, but for the character that hides itself, which is written out.
  assertEquals(
    (await page.locator("pre.exact").first().textContent())?.replace("⟨U+202E⟩", "\u202e").trimStart(),
    new TextDecoder().decode(sent.body),
  );
  assertStringIncludes(await textOf(page), sha256);

  const approvals = await textOf(await open(entered, "/approvals"));
  assertStringIncludes(approvals, "Nothing waits for your approval.");

  await open(entered, "/record");
  const head = (await requestJson(rig.paths.ownerSocket, { method: "GET", path: "/v1/audit/head" })).body as {
    seq: number;
    hash: string;
  };
  assertEquals(await textOf(page, "#head"), `${head.seq}:${head.hash}`);
  await page.locator("#verify").click();
  await page.locator("#record-verify .notice.good").waitFor();
  assertStringIncludes(await textOf(page), `Sound: ${head.seq} records, from seq 1 to ${head.seq}.`);
  await page.locator(`a[href$="/record/${head.seq}"]`).first().click();
  await page.waitForURL(`**/record/${head.seq}`);
  assertStringIncludes(await textOf(page), `"seq": ${head.seq}`);

  const roles = await textOf(await open(entered, "/roles"));
  for (
    const wanted of ["loopd", "brokerd", "never used", `${rig.paths.run}/owner.sock`, "nothing was denied"]
  ) {
    assertStringIncludes(roles, wanted);
  }

  for (
    const path of ["/now", "/sessions", `/sessions/${chat}`, "/consults", "/approvals", "/record", "/roles"]
  ) {
    const { httpStatus, bytes } = await fetched(page, at(path));
    assertEquals([path, httpStatus, bytes <= pageBytesMax], [path, 200, true]);
  }
  assertEquals(browser.complaints, []);
});

Deno.test("B11 a page that is looked at changes by itself: a new session, a turn's end, a call that waits", async () => {
  await using rig = await startConsoleRig({ script, grants: askPrivate });
  const first = await rig.newSession();
  await rig.send(first, "say something");
  await using browser = await startBrowser();
  const entered = await enter(rig, browser);
  const { page } = entered;

  await open(entered, "/sessions");
  const second = await rig.newSession();
  await rig.send(second, "say more");
  await page.locator("tr", { hasText: second }).getByText("completed").waitFor();

  await open(entered, `/sessions/${first}`);
  const thinking = page.locator("main");
  await rig.send(first, "spawn a count");
  await thinking.getByText("all done").waitFor();

  await open(entered, "/now");
  const asked = rig.send(second, "consult about it");
  await page.getByText("One call waits for your decision.").waitFor();
  assertEquals(await textOf(page, "#waiting"), ", waiting: 1");
  assertEquals(await page.title(), "(1) Now – Boxmaker");
  await page.locator("tr", { hasText: second }).getByText("waiting").first().waitFor();
  await decide(rig, "deny");
  await asked;
  await page.getByText("One call waits for your decision.").waitFor({ state: "detached" });
  assertEquals(browser.complaints, []);
});

Deno.test("B6 an approval is decided in the console by keyboard alone, on the bytes that were shown and once", async () => {
  await using rig = await startConsoleRig({ script, grants: askPrivate, allowDecisions: true });
  const chat = await rig.newSession();
  await using browser = await startBrowser();
  const entered = await enter(rig, browser);
  const { page } = entered;
  const asked = rig.send(chat, "consult about it");
  const approval = await rig.nextApproval();

  // From the first key: past the skip link, along the navigation, into the page.
  await page.keyboard.press("Tab");
  assertEquals(await focused(page), "To the content");
  await pressUntil(page, "Tab", "Approvals");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/approvals");
  await page.waitForSelector('#live-state[data-state="on"]');
  assertStringIncludes(await textOf(page), approval.bodySha256);
  assertEquals(
    (await page.locator("pre.exact").textContent())?.replace("⟨U+202E⟩", "\u202e").trimStart(),
    approval.body,
  );
  await pressUntil(page, "Tab", "Its text, as the other side would read it");
  await page.keyboard.press("Enter");
  assert(await page.locator(".card pre.prose").isVisible());
  await pressUntil(page, "Tab", "Approve these bytes");
  assertEquals(await styleOf(page, ":focus", "outlineWidth"), "2px");
  await page.keyboard.press("Enter");
  await page.getByText(`Approved ${approval.id}.`).waitFor();

  const outcome = await asked;
  assertEquals(outcome.calls.map(({ tool, status }) => ({ tool, status })), [{
    tool: "consult",
    status: "ok",
  }]);
  assertEquals(rig.endpoint.requests.length, 1);
  assertEquals(await hexSha256(rig.endpoint.requests[0].body), approval.bodySha256);

  // Of another one, the wrong bytes: nothing is decided.
  const again = rig.send(await rig.newSession(), "consult about it");
  const other = await rig.nextApproval();
  const wrong = "0".repeat(64);
  await open(entered, "/approvals");
  await page.locator('input[name="bodySha256"]').evaluate(
    (input, value) => input.setAttribute("value", value),
    wrong,
  );
  await page.locator(`#approve-${other.id}`).click();
  await page.getByText("Nothing was decided").waitFor();
  assertEquals(rig.endpoint.requests.length, 1);
  await page.locator(`#deny-${other.id}`).click();
  await page.getByText(`Denied ${other.id}.`).waitFor();
  assertEquals((await again).calls.at(0)?.code, "ApprovalDenied");
  assertEquals(browser.complaints, []);
});

Deno.test("F9 a script, a handler and a bidi trick in a transcript are shown and do nothing, also where they come live", async () => {
  await using rig = await startConsoleRig({ script, grants: askPrivate });
  const chat = await rig.newSession();
  await rig.send(chat, "a first hostile <i>word</i>");
  await using browser = await startBrowser();
  const entered = await enter(rig, browser);
  const { page } = entered;
  await open(entered, `/sessions/${chat}`);
  const shown = async (times: number) => {
    const answers = page.locator(".record.assistant > pre.prose");
    await answers.nth(times - 1).waitFor();
    assertEquals(
      (await answers.allTextContents()).map((text) => text.trim()),
      Array.from(
        { length: times },
        () =>
          `<script>document.title = "owned"</script><img src="/x" onerror="alert(1)"> invoice⟨U+202E⟩fdp.exe⟨U+0007⟩`,
      ),
    );
  };
  await shown(1);
  await rig.send(chat, "again, hostile");
  await shown(2);
  assertEquals(await page.locator("main script, main img, main svg[onload], main i").count(), 0);
  assertEquals(
    await styleOf(page, ".odd", "unicodeBidi"),
    "isolate",
  );
  assertEquals(await page.title(), `${chat} – Boxmaker`);
  for (const path of ["/sessions", "/now"]) {
    await open(entered, path);
    assertEquals(await page.locator("main script, main img, main i:not(.swatch)").count(), 0);
  }
  assertEquals(browser.complaints, []);
});

Deno.test("the console lets in whoever has the printed address, once, and nobody else: no other host, page, cookie or form", async () => {
  await using rig = await startConsoleRig({ script, grants: askPrivate });
  const { origin, address } = rig.console;
  const key = new URL(address).search;
  const host = new URL(origin).host;

  const locked = await ask(origin, "/now");
  assertEquals(locked.status, 403);
  assertStringIncludes(locked.body, "Open the address that the console printed");
  assertEquals((await ask(origin, "/enter?key=wrong")).body, locked.body);
  assertEquals((await ask(origin, "/enter" + key, { headers: { host: `${otherHost}:1` } })).status, 421);
  assertEquals(
    (await ask(origin, "/enter" + key, { headers: { origin: `http://${otherHost}` } })).status,
    403,
  );
  const entered = await ask(origin, "/enter" + key);
  assertEquals(entered.status, 200);
  const cookieText = entered.headers["set-cookie"]?.[0] ?? "";
  assertMatch(cookieText, /^boxmaker-console-\d+=[\w-]{43}; Path=\/[a-z0-9]{12}; HttpOnly; SameSite=Strict$/);
  assertEquals((await ask(origin, "/enter" + key)).body, locked.body);

  const cookie = cookieText.split(";")[0];
  const base = /Path=([^;]+)/.exec(cookieText)?.[1] ?? "";
  const page = await ask(origin, `${base}/now`, { headers: { cookie } });
  assertEquals(page.status, 200);
  // Nothing of the owner's is kept by the browser; style and script, which are the same for everybody, are.
  const [styled] = /\/console\.css\?[a-z0-9]+/.exec(page.body) ?? [""];
  assertEquals((await ask(origin, styled)).headers["cache-control"], "private, max-age=86400");
  for (const [name, value] of Object.entries(wantedHeaders)) {
    assertEquals([name, page.headers[name]], [name, value]);
  }
  assertMatch(
    page.headers["content-security-policy"] ?? "",
    /default-src 'none'; script-src 'self'; style-src 'self'/,
  );
  assert(!/unsafe/.test(page.headers["content-security-policy"] ?? ""));

  const refused: [Record<string, string>, number][] = [
    [{}, 403],
    [{ cookie: cookie.slice(0, -1) + "!" }, 403],
    [{ cookie, host: `${otherHost}:${host.split(":")[1]}` }, 421],
    [{ cookie, host: host.replace("127.0.0.1", "localhost") }, 421],
    [{ cookie, origin: "null" }, 403],
    [{ cookie, origin: `http://127.0.0.1:1` }, 403],
    [{ cookie, "sec-fetch-site": "same-site" }, 403],
    [{ cookie, "sec-fetch-site": "cross-site" }, 403],
  ];
  for (const [headers, status] of refused) {
    assertEquals([headers, (await ask(origin, `${base}/now`, { headers })).status], [headers, status]);
  }
  assertEquals(
    (await ask(origin, `${base}/now`, { headers: { cookie, "sec-fetch-site": "none" } })).status,
    200,
  );

  // Read only: with every key of a right form, nothing is decided.
  const chat = await rig.newSession();
  const asked = rig.send(chat, "consult about it");
  const { id, bodySha256 } = await rig.nextApproval();
  const record = await ask(origin, `${base}/record`, { headers: { cookie } });
  const formKey = /name="formKey" value="([^"]+)"/.exec(record.body)?.[1] ?? "";
  const form = (fields: Record<string, string>, headers: Record<string, string> = {}) =>
    ask(origin, `${base}/approvals/${id}`, {
      method: "POST",
      headers: { cookie, origin, "content-type": "application/x-www-form-urlencoded", ...headers },
      body: new URLSearchParams({ decision: "approve", bodySha256, ...fields }).toString(),
    });
  const readOnly = await form({ formKey });
  assertEquals(readOnly.status, 403);
  assertStringIncludes(readOnly.body, "only shows");
  assertStringIncludes((await form({})).body, "does not come from a page of this console");
  assertStringIncludes((await form({ formKey: "x" })).body, "does not come from a page of this console");
  assertEquals((await form({ formKey }, { origin: `http://${otherHost}` })).status, 403);
  const shown = await ask(origin, `${base}/approvals/${id}`, { headers: { cookie } });
  assert(!shown.body.includes("<button"));
  assertStringIncludes(shown.body, `bx approvals approve ${id}`);
  assertEquals((await rig.nextApproval()).id, id);
  await decide(rig, "deny");
  await asked;

  for (const path of ["/nothing", "/sessions/Nobody", "/record/0", "/approvals/a1/b", "/../../etc/passwd"]) {
    const { status } = await ask(origin, base + path, { headers: { cookie } });
    assert(status === 404 || status === 403, `${path}: ${status}`);
  }
});

Deno.test("a page of elsewhere cannot read the console, post to it, frame it, or reach it under a name of its own", async () => {
  await using rig = await startConsoleRig({ script, grants: askPrivate, allowDecisions: true });
  const chat = await rig.newSession();
  const asked = rig.send(chat, "consult about it");
  const { id, bodySha256 } = await rig.nextApproval();
  await using browser = await startBrowser();
  const { page, at } = await enter(rig, browser);
  const port = new URL(rig.console.origin).port;

  // A name that leads to this device, as in DNS rebinding.
  const rebound = await page.goto(`http://${otherHost}:${port}/`);
  assertEquals(rebound?.status(), 421);

  // Another server of this device: the same site for a browser, another origin for us. It is even told the whole address.
  await using elsewhere = await startPage(`<form id="f" method="post" action="${at(`/approvals/${id}`)}">
    <input name="decision" value="approve"><input name="bodySha256" value="${bodySha256}"></form>
    <iframe src="${at("/now")}"></iframe>`);
  await page.goto(elsewhere.url);
  const read = await page.evaluate(
    (url) =>
      fetch(url, { credentials: "include", mode: "no-cors" }).then(({ type }) => type, () => "refused"),
    at("/now"),
  );
  assertEquals(read, "refused");
  assertEquals(elsewhere.cookies, [], "the console's cookie is sent to no other server of this device");
  const [posted] = await Promise.all([
    page.waitForResponse((response) => response.request().method() === "POST"),
    page.locator("#f").evaluate((form) => (form as unknown as { submit(): void }).submit()),
  ]);
  assertEquals(posted.status(), 403);
  assertEquals((await rig.nextApproval()).id, id);
  assertEquals(rig.endpoint.requests.length, 0);
  await decide(rig, "deny");
  await asked;
});

Deno.test("a console whose roles are gone says so on each page, and shows them again when they are back", async () => {
  await using rig = await startConsoleRig({ script });
  const chat = await rig.newSession();
  await rig.send(chat, "say something");
  await using browser = await startBrowser();
  const entered = await enter(rig, browser);
  await open(entered, "/now");
  await rig.stopRoles();
  await entered.page.locator("#slots").getByText("loopd is not running").waitFor();
  for (const path of ["/sessions", "/consults", "/approvals", "/record"]) {
    assertStringIncludes(await textOf(await open(entered, path)), "is not running");
  }
  await open(entered, "/sessions");
  await rig.startRoles();
  await entered.page.getByText(chat).waitFor();
});

const wantedHeaders: Readonly<Record<string, string>> = {
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  "referrer-policy": "same-origin",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "cache-control": "no-store",
};

interface Answer {
  readonly status: number;
  readonly headers: Record<string, string | undefined> & { "set-cookie"?: string[] };
  readonly body: string;
}

/** A request with exactly these headers: `fetch` would not send another Host. */
function ask(
  origin: string,
  path: string,
  { method = "GET", headers = {}, body }: {
    method?: string;
    headers?: Record<string, string>;
    body?: string;
  } = {},
): Promise<Answer> {
  const { hostname, port } = new URL(origin);
  return new Promise((resolve, reject) => {
    const request = http.request({ hostname, port, path, method, headers, agent: false }, (response) => {
      let text = "";
      response.setEncoding("utf-8");
      response.on("data", (chunk) => text += chunk);
      response.on(
        "end",
        () =>
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers as Answer["headers"],
            body: text,
          }),
      );
      response.on("error", reject);
    });
    request.on("error", reject);
    request.end(body);
  });
}

async function fetched(page: Page, url: string): Promise<{ httpStatus: number; bytes: number }> {
  return await page.evaluate(async (address) => {
    const response = await fetch(address);
    return { httpStatus: response.status, bytes: (await response.arrayBuffer()).byteLength };
  }, url);
}

async function hexSha256(bytes: Uint8Array): Promise<string> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", new Uint8Array(bytes))).toHex();
}

/** The text of what has the keyboard. */
function focused(page: Page): Promise<string> {
  return page.locator(":focus").innerText();
}

const keysMax = 40;

async function pressUntil(page: Page, key: string, text: string): Promise<void> {
  for (let pressed = 0; pressed < keysMax; pressed++) {
    await page.keyboard.press(key);
    if (await page.locator(":focus").count() > 0 && (await focused(page)).startsWith(text)) return;
  }
  throw new Error(`${keysMax} times ${key} do not lead to ${text}`);
}

/** What the browser computed; a text, since types of the page's own world are not this one's. */
function styleOf(page: Page, selector: string, property: string): Promise<unknown> {
  return page.evaluate(
    `getComputedStyle(document.querySelector(${JSON.stringify(selector)}))[${JSON.stringify(property)}]`,
  );
}

/** Another server of this device, with one page. */
async function startPage(html: string): Promise<{ url: string; cookies: string[] } & AsyncDisposable> {
  const cookies: string[] = [];
  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, (request) => {
    const cookie = request.headers.get("cookie");
    if (cookie !== null) cookies.push(cookie);
    return new Response(html, { headers: { "content-type": "text/html" } });
  });
  return {
    url: `http://127.0.0.1:${server.addr.port}/`,
    cookies,
    [Symbol.asyncDispose]: () => server.shutdown(),
  };
}
