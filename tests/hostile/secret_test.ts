// F27: one marked key, every way a consult can end, the whole system as its owner runs it; then every byte that was written anywhere is
// searched for the key in every form that a careless writer could have given it. The key's own file and the wire are the control.

import { assert, assertEquals } from "@std/assert";
import { Buffer } from "node:buffer";
import { Bx } from "../../tools/demo/bx.ts";
import { ownEnvironment } from "../../tools/launch/environment.ts";
import { startConsultEndpoint } from "../../tools/stubs/consult_endpoint.ts";
import { startModelStub } from "../../tools/stubs/model.ts";
import { decisions, readRecords } from "../support/broker_rig.ts";
import { tempHome } from "../support/temp_home.ts";
import { startLauncher } from "./roles.ts";

/** Visible ASCII as a key may be, with every character that some encoding changes. */
const key = `sk-MARKED-"\\<&>%+/=?#'{}$\`~9f3a7d1c`;

/** The key as plain text, in JSON, percent-encoded, in hex, in base64 at each alignment, reversed, and any longer piece of it. */
function formsOf(secret: string): { name: string; text: string }[] {
  const bytes = Buffer.from(secret);
  const forms = [
    { name: "plain", text: secret },
    { name: "JSON", text: JSON.stringify(secret).slice(1, -1) },
    { name: "JSON in JSON", text: JSON.stringify(JSON.stringify(secret).slice(1, -1)).slice(1, -1) },
    { name: "percent", text: encodeURIComponent(secret) },
    { name: "percent, all", text: [...bytes].map((byte) => `%${byte.toString(16)}`).join("") },
    { name: "URI", text: encodeURI(secret) },
    { name: "form", text: new URLSearchParams({ k: secret }).toString().slice(2) },
    { name: "hex", text: bytes.toString("hex") },
    { name: "reversed", text: [...secret].reverse().join("") },
    { name: "quoted", text: `'${secret.replaceAll("'", "'\\''")}'` },
    { name: "neutralised", text: secret.replaceAll("<", "‹") },
    { name: "HTML", text: secret.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;") },
    { name: "a piece", text: secret.slice(0, 10) },
    { name: "the other piece", text: secret.slice(-10) },
  ];
  for (let lead = 0; lead < 3; lead++) {
    // Cut to the groups of four that the text around it does not change.
    const whole = Buffer.concat([Buffer.alloc(lead), bytes]).toString("base64");
    const inner = whole.slice(lead === 0 ? 0 : 4, Math.floor((lead + bytes.length) / 3) * 4);
    forms.push({ name: `base64 at ${lead}`, text: inner });
    forms.push({
      name: `base64url at ${lead}`,
      text: inner.replaceAll("+", "-").replaceAll("/", "_"),
    });
  }
  return forms;
}

function hits(places: ReadonlyMap<string, string>): string[] {
  const found: string[] = [];
  for (const [place, text] of places) {
    for (const form of formsOf(key)) if (text.includes(form.text)) found.push(`${form.name} in ${place}`);
  }
  return found;
}

async function filesBelow(directory: string, into: Map<string, string>): Promise<void> {
  for await (const { name, isDirectory, isFile } of Deno.readDir(directory)) {
    const path = `${directory}/${name}`;
    if (isDirectory) await filesBelow(path, into);
    else if (isFile) into.set(path, Buffer.from(await Deno.readFile(path)).toString("latin1"));
  }
}

Deno.test("F27 after consults answered, denied, refused with 401, timed out and broken off, the key is in no file, log, output or environment", async () => {
  await using endpoint = await startConsultEndpoint({
    behaviour: ({ content }) => {
      const asked = new TextDecoder().decode(content);
      if (asked.includes("Please refuse")) return { kind: "status", status: 401, body: "no such key" };
      if (asked.includes("Please be silent")) return { kind: "silence" };
      if (asked.includes("Please break off")) return { kind: "short" };
      return { kind: "answer", content: "Noted." };
    },
  });
  await using model = await startModelStub();
  await using home = await tempHome({
    loopdToml: `[clock]\ntime_zone = "UTC"\n[inference]\nurl = "${model.url}"\n`,
    brokerdToml:
      `[consult]\nurl = "${endpoint.url}"\nmodel = "m"\nsecret = "consult"\ntimeout_ms = 1500\n[approvals]\nexpire_minutes = 0.02\n`,
    grantsToml: [
      '[[grant]]\ntool = "consult"\nmax_taint = "private"\nallow_untrusted = true\nsessions = ["chat-may"]\n',
      '[[grant]]\ntool = "consult"\nmax_taint = "private"\nmode = "ask"\nsessions = ["chat-ask"]\n',
    ].join(""),
    secrets: { consult: `${key}\n` },
  });
  const { paths } = home;
  const places = new Map<string, string>();
  const stop = new AbortController();
  const bx = new Bx({ home: paths.home, own: ownEnvironment(), signal: stop.signal, timeoutMs: 60_000 });
  const run = async (...words: string[]) => {
    const { code, stdout, stderr } = await bx.run(words);
    places.set(`bx ${words.join(" ")}`, stdout + stderr);
    return code;
  };
  {
    await using up = await startLauncher(paths);
    const asked: [string, string, string][] = [
      ["chat-may", "ask the cloud: Is it so?", "ok"],
      ["chat-may", "ask the cloud: Please refuse.", "consult-http"],
      ["chat-may", "ask the cloud: Please be silent.", "consult-timeout"],
      ["chat-may", "ask the cloud: Please break off.", "consult-unknown"],
      ["chat-not", "ask the cloud: May I?", "NoGrant"],
      ["chat-ask", "ask the cloud: Will you let me?", "ApprovalExpired"],
    ];
    for (const [session, text, wanted] of asked) {
      const { calls } = await bx.send(session, text);
      assertEquals([text, calls[0].code ?? calls[0].status], [text, wanted]);
    }
    const commands = [
      ["sessions"],
      ["tree"],
      ["log", "chat-may"],
      ["log", "chat-may", "--json"],
      ["status"],
      ["status", "--json"],
      ["approvals"],
      ["grants", "check", "--tool", "consult", "--class", "private"],
      ["consult", "preview", "chat-may", "A question?"],
      ["consult", "preview", "chat-may", "A question?", "--json"],
      ["audit", "show"],
      ["audit", "show", "--json"],
      ["audit", "head"],
      ["doctor"],
      ["grants", "reload"],
      ["retire", "chat-not"],
    ];
    await Promise.all(commands.map((words) => run(...words)));
    assertEquals(await run("audit", "verify"), 0);
    for (const [role, pid] of Object.entries(up.pids)) {
      for (const name of ["cmdline", "environ"]) {
        places.set(`${name} of ${role}`, await Deno.readTextFile(`/proc/${pid}/${name}`));
      }
    }
    const { code, stdout, stderr } = await up.stop();
    assertEquals(code, 0);
    places.set("what up printed", stdout);
    places.set("what up complained of", stderr);
  }
  // A start that fails says what is wrong with the secret, and not what stands in it.
  await Deno.chmod(`${paths.secrets}/consult`, 0o644);
  await run("doctor");
  await Deno.chmod(`${paths.secrets}/consult`, 0o600);
  places.set("what the model was sent", JSON.stringify(model.requests.map(({ body }) => body)));
  await filesBelow(paths.home, places);
  places.delete(`${paths.secrets}/consult`);

  assert(places.size > 30, `${places.size} places`);
  assertEquals(hits(places), []);
  // The controls: the search finds the key where it is, and it went out where it had to.
  const wire = endpoint.requests.map(({ head }) => head);
  assertEquals(wire.map((head) => head.split(`authorization: Bearer ${key}\r\n`).length - 1), [1, 1, 1, 1]);
  assert(endpoint.requests.every(({ body }) => hits(new Map([["body", text(body)]])).length === 0));
  assertEquals(
    hits(new Map([["the secret's file", await Deno.readTextFile(`${paths.secrets}/consult`)]])).length > 0,
    true,
  );
  for (const { name, text } of formsOf(key)) assert(hits(new Map([[name, `x${text}y`]])).length > 0, name);
  const outcomes = decisions(await readRecords(paths.audit)).map(({ outcome, code }) => outcome ?? code);
  assertEquals(outcomes.sort(), ["ApprovalExpired", "NoGrant", "answered", "http", "timeout", "unknown"]);
});

function text(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes);
}
