// The session log at every byte of its end: what a crash left is repaired on disk and said so, and nothing that stood whole is lost.

import { assert, assertEquals, assertRejects } from "@std/assert";
import { UsageError } from "../../../core/errors.ts";
import { parseSessionId } from "../../../core/ids.ts";
import type { Label } from "../../../core/labels.ts";
import {
  createSessionLog,
  openSessionLog,
  readSessionLog,
  sessionLogPath,
} from "../../../loopd/session/log.ts";
import type { NewRecord, SessionRecord } from "../../../loopd/session/record.ts";
import { fakeClock } from "../../support/fake_clock.ts";
import { namesIn } from "../../support/transcript.ts";

const id = parseSessionId("chat-a");
const label: Label = { class: "private", untrusted: false };
const turn: NewRecord[] = [
  { kind: "open", session: id, parent: null, label },
  { kind: "epoch", epoch: 1, system: "Grüße", tools: "[]" },
  { kind: "user", turn: 1, text: "what 😀 time\nis it?" },
  { kind: "end", turn: 1, status: "failed", reason: "silent", detail: "no sign of life" },
];

interface TempSessions extends AsyncDisposable {
  readonly directory: string;
  readonly path: string;
  /** The log's bytes as they are now. */
  bytes(): Promise<Uint8Array<ArrayBuffer>>;
}

async function tempSessions(records: readonly NewRecord[] = turn): Promise<TempSessions> {
  const directory = await Deno.makeTempDir({ prefix: "bx-" });
  const log = await createSessionLog(directory, id, fakeClock());
  await log.append(records);
  await log.close();
  const path = sessionLogPath(directory, id);
  return {
    directory,
    path,
    bytes: () => Deno.readFile(path),
    [Symbol.asyncDispose]: () => Deno.remove(directory, { recursive: true }),
  };
}

async function openOnce(directory: string): Promise<SessionRecord[]> {
  const { log, records } = await openSessionLog(directory, id, fakeClock());
  await log.close();
  return records;
}

const withoutRepair = (records: readonly SessionRecord[]) => records.filter(({ kind }) => kind !== "repair");

Deno.test("B1 records come back as they were appended, numbered from 1 and dated", async () => {
  await using sessions = await tempSessions();
  const records = await openOnce(sessions.directory);
  assertEquals(records.map(({ seq }) => seq), [1, 2, 3, 4]);
  assertEquals(
    records.map((
      { v: _v, seq: _seq, time, ...record },
    ) => (assertEquals(time, "2026-12-01T12:00:00.000Z"), record)),
    turn,
  );
  assertEquals(await readSessionLog(sessions.path), records);
});

Deno.test("B1 the log and its directory are the owner's alone", async () => {
  await using sessions = await tempSessions();
  assertEquals(((await Deno.stat(sessions.path)).mode ?? 0) & 0o777, 0o600);
  assertEquals(((await Deno.stat(`${sessions.directory}/${id}`)).mode ?? 0) & 0o777, 0o700);
});

Deno.test("B1 F4 a log torn at any byte of its last record keeps every record before it, repairs the file and says so", async () => {
  await using sessions = await tempSessions();
  const whole = await sessions.bytes();
  const lastLine = whole.lastIndexOf(0x0a, whole.length - 2) + 1;
  const before = (await openOnce(sessions.directory)).slice(0, -1);
  for (let length = lastLine + 1; length < whole.length; length++) {
    await Deno.writeFile(sessions.path, whole.subarray(0, length));
    const records = await openOnce(sessions.directory);
    assertEquals(withoutRepair(records), before, `torn after ${length} bytes`);
    const repair = records.at(-1);
    assert(repair?.kind === "repair" && repair.seq === 4, "the repair is the next record");
    assertEquals(repair.text, `the last line was torn (${length - lastLine} bytes); cut off`);
    // What was repaired once is whole: opening it again changes nothing.
    const repaired = await sessions.bytes();
    assertEquals(await openOnce(sessions.directory), records);
    assertEquals(await sessions.bytes(), repaired);
  }
});

Deno.test("B1 a log cut between two records is whole, and nothing is repaired", async () => {
  await using sessions = await tempSessions();
  const whole = await sessions.bytes();
  await Deno.writeFile(sessions.path, whole.subarray(0, whole.lastIndexOf(0x0a, whole.length - 2) + 1));
  assertEquals((await openOnce(sessions.directory)).map(({ kind }) => kind), ["open", "epoch", "user"]);
});

Deno.test("B1 what a repair cuts off is kept beside the log, byte for byte", async () => {
  await using sessions = await tempSessions();
  const whole = await sessions.bytes();
  await Deno.writeFile(sessions.path, whole.subarray(0, whole.length - 5));
  await openOnce(sessions.directory);
  const [beside] = (await namesIn(`${sessions.directory}/${id}`)).filter((name) => name.includes("damaged"));
  const lastLine = whole.lastIndexOf(0x0a, whole.length - 2) + 1;
  assertEquals(
    await Deno.readFile(`${sessions.directory}/${id}/${beside}`),
    whole.subarray(lastLine, whole.length - 5),
  );
});

for (
  const [what, damage] of [
    ["holds a line that is no JSON", (lines: string[]) => lines.with(2, "{oops")],
    [
      "holds a record of no known kind",
      (lines: string[]) => lines.with(2, lines[2].replace('"user"', '"usher"')),
    ],
    [
      "holds a record with an unknown key",
      (lines: string[]) => lines.with(2, lines[2].replace('"kind"', '"x":1,"kind"')),
    ],
    ["misses a line", (lines: string[]) => lines.toSpliced(2, 1)],
    ["holds a line twice", (lines: string[]) => lines.toSpliced(2, 0, lines[1])],
    ["holds an empty line", (lines: string[]) => lines.toSpliced(2, 0, "")],
  ] as const
) {
  Deno.test(`B1 a log that ${what} in its middle is kept up to there, and the rest lies beside it`, async () => {
    await using sessions = await tempSessions();
    const lines = new TextDecoder().decode(await sessions.bytes()).trimEnd().split("\n");
    await Deno.writeTextFile(sessions.path, damage(lines).join("\n") + "\n");
    const records = await openOnce(sessions.directory);
    assertEquals(records.map(({ kind }) => kind), ["open", "epoch", "repair"]);
    const repair = records[2];
    assert(
      repair.kind === "repair" && /^line 3 is damaged; .* were cut off$/.test(repair.text),
      JSON.stringify(repair),
    );
    assertEquals((await namesIn(`${sessions.directory}/${id}`)).length, 2);
    assertEquals(await openOnce(sessions.directory), records);
  });
}

Deno.test("B1 a log of a newer format is refused by name and left as it is", async () => {
  await using sessions = await tempSessions();
  const newer = new TextDecoder().decode(await sessions.bytes()).replaceAll('"v":1', '"v":2');
  await Deno.writeTextFile(sessions.path, newer);
  await assertRejects(
    () => openOnce(sessions.directory),
    UsageError,
    "format version 2 is newer than this Boxmaker reads (1)",
  );
  await assertRejects(() => readSessionLog(sessions.path), UsageError, sessions.path);
  assertEquals(new TextDecoder().decode(await sessions.bytes()), newer);
  assertEquals(await namesIn(`${sessions.directory}/${id}`), ["log.jsonl"]);
});

Deno.test("B1 reading a torn log without opening it changes no byte of it", async () => {
  await using sessions = await tempSessions();
  const torn = (await sessions.bytes()).slice(0, -3);
  await Deno.writeFile(sessions.path, torn);
  assertEquals((await readSessionLog(sessions.path)).length, 3);
  assertEquals(await sessions.bytes(), torn);
});

Deno.test("B1 appends that come at once are written in the order of the calls, and each resolves with its own records", async () => {
  await using sessions = await tempSessions(turn.slice(0, 2));
  const { log } = await openSessionLog(sessions.directory, id, fakeClock());
  const numbers = Array.from({ length: 50 }, (_, at) => at + 1);
  const written = await Promise.all(
    numbers.map((number) =>
      log.append([{ kind: "repair", text: `${number}` }, { kind: "repair", text: `${number}b` }])
    ),
  );
  await log.close();
  assertEquals(
    written.map((records) => records.map(({ seq }) => seq)),
    numbers.map((at) => [2 * at + 1, 2 * at + 2]),
  );
  const texts = (await readSessionLog(sessions.path)).slice(2).map((record) =>
    record.kind === "repair" && record.text
  );
  assertEquals(texts, numbers.flatMap((number) => [`${number}`, `${number}b`]));
});

Deno.test("B1 the longest record that can be written can be read again, whatever its characters cost in JSON", async () => {
  const longest = 1_000_000;
  for (const character of ["\u0001", "\ud800", '"', "😀".slice(0, 2)]) {
    await using sessions = await tempSessions([
      ...turn.slice(0, 2),
      { kind: "user", turn: 1, text: character.repeat(longest / character.length) },
    ]);
    assertEquals((await openOnce(sessions.directory)).map(({ kind }) => kind), ["open", "epoch", "user"]);
  }
});

Deno.test("B1 a session that is there already is not made again, and a directory without a log is no session", async () => {
  await using sessions = await tempSessions();
  await assertRejects(() => createSessionLog(sessions.directory, id, fakeClock()), Deno.errors.AlreadyExists);
  const other = parseSessionId("chat-b");
  await Deno.mkdir(`${sessions.directory}/${other}`);
  const log = await createSessionLog(sessions.directory, other, fakeClock());
  await log.close();
  await assertRejects(
    () => openSessionLog(sessions.directory, parseSessionId("chat-c"), fakeClock()),
    Deno.errors.NotFound,
  );
});
