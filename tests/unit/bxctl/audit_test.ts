// Audit commands on real files: no role runs, nothing is changed, and every state of the log has its exit code.

import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { encodeRecord, sha256 } from "../../../core/audit/chain.ts";
import type { AuditHead, NewAuditRecord } from "../../../core/audit/record.ts";
import { parseSessionId } from "../../../core/ids.ts";
import { bx, privateLabel, withRoles } from "./fake_roles.ts";

const session = parseSessionId("chat-1");
const body = '{"model":"m","temperature":0.6,"messages":[{"role":"user","content":"\\u202e?"}]}';

const records: readonly NewAuditRecord[] = [
  { kind: "ledger", part: 1, parts: 1, sessions: [], open: [], spent: [] },
  { kind: "start", pid: 7 },
  { kind: "label", session, label: privateLabel },
  {
    kind: "intent",
    session,
    call: 3,
    tool: "consult",
    label: privateLabel,
    grant: 1,
    body,
    bodySha256: sha256(body),
  },
  {
    kind: "decision",
    session,
    call: 3,
    tool: "consult",
    label: privateLabel,
    verdict: "allow",
    grant: 1,
    intent: 4,
    body,
    bodySha256: sha256(body),
    outcome: "answered",
    status: 200,
    answer: "Four.\x1b[2J",
    elapsedMs: 12,
  },
  {
    kind: "decision",
    session: parseSessionId("chat-2"),
    call: 1,
    tool: "other",
    label: privateLabel,
    verdict: "deny",
    code: "NoGrant",
  },
];

/** A home with a whole audit log, one record a minute from 10:00; `lines` are its bytes as text. */
async function withLog(
  work: (log: { home: string; dir: string; lines: string[]; head: AuditHead }) => Promise<void>,
) {
  const home = await Deno.makeTempDir({ prefix: "bx" });
  try {
    const dir = `${home}/audit`;
    await Deno.mkdir(dir, { mode: 0o700 });
    let head: AuditHead | undefined;
    const lines = records.map((fields, index) => {
      const encoded = encodeRecord(fields, { head, time: `2026-12-01T10:0${index}:00.000Z` });
      head = { seq: encoded.record.seq, hash: encoded.hash };
      return new TextDecoder().decode(encoded.bytes);
    });
    if (head === undefined) throw new Error("the log has records");
    await Deno.writeTextFile(`${dir}/head.json`, JSON.stringify(head));
    await writeLog(dir, lines);
    await work({ home, dir, lines, head });
  } finally {
    await Deno.remove(home, { recursive: true });
  }
}

function writeLog(dir: string, lines: readonly string[]): Promise<void> {
  return Deno.writeTextFile(`${dir}/audit-000001.jsonl`, lines.join(""));
}

Deno.test("B8 audit show needs no role and prints what was decided, safely", () =>
  withLog(async ({ home }) => {
    const { code, stdout, stderr } = await bx(["audit", "--home", home]);
    assertEquals([code, stderr], [0, ""]);
    assertStringIncludes(stdout, "4 2026-12-01T10:03:00.000Z  intent  chat-1  consult  call 3  [private]\n");
    assertStringIncludes(stdout, "decision  chat-1  consult  allow  answered  200  call 3  [private]\n");
    assertStringIncludes(stdout, `    body      ${body}\n`);
    assertStringIncludes(stdout, "    answer    Four.⟨U+001B⟩[2J\n");
    assertStringIncludes(stdout, "decision  chat-2  other  deny  NoGrant  call 1  [private]\n");
  }));

Deno.test("B8 audit show --json is one record a line, of the session, tool and time asked for", () =>
  withLog(async ({ home, lines }) => {
    const seqs = async (...words: string[]) => {
      const { stdout } = await bx(["audit", "show", "--json", "--home", home, ...words]);
      return stdout.split("\n").filter((line) => line !== "").map((line) => JSON.parse(line).seq);
    };
    const { stdout } = await bx(["audit", "show", "--json", "--home", home]);
    assertEquals(
      stdout.trimEnd().split("\n").map((line) => JSON.parse(line)),
      lines.map((line) => JSON.parse(line)),
    );
    assertEquals(await seqs("--session", "chat-1"), [3, 4, 5]);
    assertEquals(await seqs("--tool", "consult", "--session", "chat-1"), [4, 5]);
    assertEquals(await seqs("--since", "2026-12-01T10:04:00Z"), [5, 6]);
    assertEquals(await seqs("--since", "2026-12-01T11:04:00+01:00"), [5, 6]);
    assertEquals(await seqs("--since", "2026-12-01"), [1, 2, 3, 4, 5, 6]);
    assertEquals(await seqs("--since", "2026-12-02"), []);
  }));

Deno.test("B8 audit show names a line that cannot be read, shows the others, and exits 1", () =>
  withLog(async ({ home, dir, lines }) => {
    await writeLog(dir, [...lines.slice(0, 3), "not a record\n", ...lines.slice(4)]);
    const { code, stdout, stderr } = await bx(["audit", "show", "--json", "--home", home]);
    assertEquals([code, stdout.trimEnd().split("\n").length], [1, 5]);
    assertMatch(stderr, /audit-000001\.jsonl: no readable record at byte \d+/);
  }));

Deno.test("F28 audit verify has an exit code for each state of the log", () =>
  withLog(async ({ home, dir, lines, head }) => {
    const verify = async (...words: string[]) => await bx(["audit", "verify", "--home", home, ...words]);
    const sound = await verify();
    assertEquals(sound.code, 0);
    assertStringIncludes(sound.stdout, `head  ${head.seq}:${head.hash}\n`);
    assertEquals((await verify("--head", `${head.seq}:${head.hash}`)).code, 0);
    const againstEmpty = await verify("--head", `0:${"0".repeat(64)}`);
    assertEquals(againstEmpty.code, 0);
    assertStringIncludes(againstEmpty.stdout, "Held against head.json only");

    const flipped = lines.with(2, lines[2].replace("private", "Private"));
    await writeLog(dir, flipped);
    const altered = await verify();
    assertEquals(altered.code, 10);
    assertMatch(altered.stdout, /first bad seq is 4/);
    await writeLog(dir, lines.toSpliced(3, 1));
    assertEquals((await verify()).code, 10);

    await writeLog(dir, lines.slice(0, 4));
    assertEquals((await verify()).code, 11);
    await Deno.remove(`${dir}/head.json`);
    assertEquals((await verify()).code, 0);
    assertEquals((await verify("--head", `${head.seq}:${head.hash}`)).code, 11);

    await writeLog(dir, [...lines, '{"v":1,"seq":7']);
    assertEquals((await verify()).code, 12);

    assertEquals((await verify("--dir", `${home}/nowhere`)).code, 20);
    assertEquals(JSON.parse((await verify("--json")).stdout).exit, 12);
  }));

for (
  const [words, wanted] of [
    [["verify", "--head", "6"], "SEQ:HASH"],
    [["verify", "--head", `0:${"0".repeat(63)}1`], "SEQ:HASH"],
    [["show", "--since", "yesterday"], "2026-12-01"],
    [["show", "--since", "2026-02-31"], "2026-12-01"],
    [["show", "--session", "Chat"], "a-z"],
    [["prune", "--before", "now"], "2026-12-01"],
  ] as const
) {
  Deno.test(`B11 audit ${words.join(" ").slice(0, 40)} is a usage error that names the wanted form`, async () => {
    const { code, stdout, stderr } = await bx(["audit", ...words, "--home", "/nowhere"]);
    assertEquals([code, stdout], [2, ""]);
    assertStringIncludes(stderr, wanted);
  });
}

Deno.test("B8 audit head prints what audit verify --head takes, and prune passes its day on", () =>
  withRoles(async ({ home, asked, brokerd }) => {
    const hash = "a".repeat(64);
    brokerd.get("/v1/audit/head", (c) => c.json({ seq: 41, hash }));
    brokerd.post("/v1/audit/prune", (c) => c.json({ status: "ok", segments: 2 }));
    assertEquals((await bx(["audit", "head", "--home", home])).stdout, `41:${hash}\n`);
    assertEquals((await bx(["audit", "prune", "--before", "2026-12-01", "--home", home])).code, 0);
    assertEquals(asked.at(-1), { method: "POST", path: "/v1/audit/prune", body: { before: "2026-12-01" } });
  }));
