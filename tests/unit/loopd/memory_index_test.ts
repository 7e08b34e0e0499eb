// The index behind recall: what it returns under which label, and that whatever happens to it, the files alone decide.

import { assert, assertEquals } from "@std/assert";
import { DatabaseSync } from "node:sqlite";
import { parseSessionId, type SessionId } from "../../../core/ids.ts";
import { type Label, sensitivityClasses } from "../../../core/labels.ts";
import { MemoryFiles } from "../../../loopd/memory/memory_files.ts";
import { MemoryIndex, rankedMatchesMax, recallHitsMax } from "../../../loopd/memory/index.ts";
import { createSessionLog, openSessionLog, sessionLogPath } from "../../../loopd/session/log.ts";
import type { NewRecord } from "../../../loopd/session/record.ts";
import { fakeClock } from "../../support/fake_clock.ts";
import { tempHome } from "../../support/temp_home.ts";

const privateTrusted: Label = { class: "private", untrusted: false };
const secret: Label = { class: "secret", untrusted: false };
const labels: Label[] = sensitivityClasses.flatMap((sensitivity) =>
  [false, true].map((untrusted) => ({ class: sensitivity, untrusted }))
);
const chat = parseSessionId("chat-a");

async function memory() {
  const home = await tempHome();
  const files = new MemoryFiles(home.paths, fakeClock(), "private");
  const open = () => new MemoryIndex(home.paths.index, home.paths.sessions, files);
  const opened: MemoryIndex[] = [];
  return {
    paths: home.paths,
    files,
    /** A new index object on the same files; all are closed at the end. */
    open(): MemoryIndex {
      const index = open();
      opened.push(index);
      return index;
    },
    note: (text: string, label = privateTrusted) => files.add("notes", text, { session: chat, label }),
    async [Symbol.asyncDispose]() {
      for (const index of opened) index.close();
      await home[Symbol.asyncDispose]();
    },
  };
}

async function writeSession(directory: string, id: SessionId, records: NewRecord[], label = privateTrusted) {
  const log = await createSessionLog(directory, id, fakeClock());
  await log.append([
    { kind: "open", session: id, parent: null, label },
    { kind: "epoch", epoch: 1, system: "baseline plum", tools: "[]" },
    ...records,
  ]);
  await log.close();
}

const user = (text: string): NewRecord => ({ kind: "user", turn: 1, text });
const answer = (
  content: string,
  calls: { call: number; name: string; arguments: string }[] = [],
): NewRecord => ({
  kind: "assistant",
  turn: 1,
  content,
  thinking: "thinking plum",
  calls,
  slot: 0,
  timings: { cacheN: 0, promptN: 1, predictedN: 1 },
  lostN: 0,
  queuedMs: 0,
  firstTokenMs: 0,
  elapsedMs: 0,
});
const result = (call: number, tool: string, text: string, label: Label): NewRecord => ({
  kind: "result",
  call,
  tool,
  status: "ok",
  text,
  label,
});

async function found(index: MemoryIndex, query: string, label = secret): Promise<string[]> {
  return (await index.search(query, label)).hits.map(({ source, snippet }) => `${source}: ${snippet}`);
}

Deno.test("B6 a search sees items of its own class and below, untrusted ones included, each with its own label", async () => {
  await using home = await memory();
  for (const label of labels) await home.note(`plum ${label.class} ${label.untrusted}`, label);
  const index = home.open();
  for (const [at, sensitivity] of sensitivityClasses.entries()) {
    for (const untrusted of [false, true]) {
      const { hits } = await index.search("plum", { class: sensitivity, untrusted });
      const seen = labels.filter((label) => sensitivityClasses.indexOf(label.class) <= at);
      assertEquals(hits.length, seen.length);
      for (const hit of hits) assertEquals(hit.snippet, `plum ${hit.label.class} ${hit.label.untrusted}`);
    }
  }
});

Deno.test("B6 a snippet is of the hit itself, though a hit of another label matches the same words", async () => {
  await using home = await memory();
  await home.note("plum of the secret kind", secret);
  await home.note("plum of the private kind", privateTrusted);
  assertEquals(await found(home.open(), "plum", privateTrusted), ["notes: plum of the private kind"]);
});

Deno.test("B6 what the owner wrote by hand is found as private and trusted", async () => {
  await using home = await memory();
  await Deno.writeTextFile(home.paths.identity, "# Me\n- grows plums\n");
  const index = home.open();
  assertEquals((await index.search("plums", privateTrusted)).hits, [
    { source: "identity", label: privateTrusted, snippet: "grows plums" },
  ]);
  assertEquals((await index.search("plums", { class: "public", untrusted: false })).hits, []);
});

Deno.test("B6 what a session said is found under the label that it had by then", async () => {
  await using home = await memory();
  await writeSession(home.paths.sessions, chat, [
    user("early plum"),
    answer("calling", [{ call: 1, name: "call_tool", arguments: "{}" }]),
    result(1, "consult", "outside plum", { class: "private", untrusted: true }),
    answer("late plum"),
  ]);
  const { hits } = await home.open().search("plum", privateTrusted);
  assertEquals(Object.fromEntries(hits.map(({ snippet, label }) => [snippet, label.untrusted])), {
    "early plum": false,
    "outside plum": true,
    "late plum": true,
  });
  assertEquals(new Set(hits.map(({ source }) => source)), new Set([chat]));
});

Deno.test("B6 a secret session's words are secret from the first on, and a private search does not see them", async () => {
  await using home = await memory();
  await writeSession(home.paths.sessions, chat, [user("a plum")], secret);
  const index = home.open();
  assertEquals((await index.search("plum", privateTrusted)).hits, []);
  assertEquals((await index.search("plum", secret)).hits.map(({ label }) => label), [secret]);
});

Deno.test("B6 baseline, thinking, and what recall and find_tool returned are not found again", async () => {
  await using home = await memory();
  await writeSession(home.paths.sessions, chat, [
    user("question"),
    answer("", [{ call: 1, name: "recall", arguments: '{"query":"plum"}' }]),
    result(1, "recall", "found plum", privateTrusted),
    answer("", [{ call: 2, name: "find_tool", arguments: '{"query":"plum"}' }]),
    result(2, "find_tool", "tool plum", privateTrusted),
    answer("done"),
  ]);
  assertEquals(await found(home.open(), "plum"), []);
});

Deno.test("B6 what is appended is found by the next search, and nothing twice", async () => {
  await using home = await memory();
  const index = home.open();
  await writeSession(home.paths.sessions, chat, [user("first plum")]);
  index.note(chat);
  assertEquals(await found(index, "plum"), [`${chat}: first plum`]);
  const { log } = await openSessionLog(home.paths.sessions, chat, fakeClock());
  await log.append([answer("second plum")]);
  await log.close();
  index.note(chat);
  await home.note("third plum");
  for (const again of [index, home.open()]) {
    assertEquals((await found(again, "plum")).sort(), [
      `${chat}: first plum`,
      `${chat}: second plum`,
      "notes: third plum",
    ]);
  }
});

Deno.test("B6 a torn last line is passed over until it is whole", async () => {
  await using home = await memory();
  await writeSession(home.paths.sessions, chat, [user("whole plum"), user("torn plum")]);
  const path = sessionLogPath(home.paths.sessions, chat);
  const whole = await Deno.readFile(path);
  await Deno.writeFile(path, whole.subarray(0, whole.length - 1));
  const index = home.open();
  assertEquals(await found(index, "plum"), [`${chat}: whole plum`]);
  await Deno.writeFile(path, whole);
  index.note(chat);
  assertEquals((await found(index, "plum")).length, 2);
});

Deno.test("B6 a line longer than one read is found, and so is what follows it", async () => {
  await using home = await memory();
  await writeSession(home.paths.sessions, chat, [
    user(`long plum ${"x".repeat(3_000_000)}`),
    user("after plum"),
  ]);
  assertEquals((await found(home.open(), "after")).length, 1);
  assertEquals((await found(home.open(), "long")).length, 1);
});

for (
  const [what, damage] of [
    ["deleted", (path: string) => Deno.remove(path)],
    ["overwritten with rubbish", (path: string) => Deno.writeTextFile(path, "no database ".repeat(1_000))],
    ["cut to nothing", (path: string) => Deno.writeTextFile(path, "")],
    [
      "cut in half",
      async (path: string) => await Deno.truncate(path, Math.floor((await Deno.stat(path)).size / 2)),
    ],
    ["damaged in its middle", async (path: string) => {
      const bytes = await Deno.readFile(path);
      bytes.fill(0x55, 4_096, Math.min(bytes.length, 20_480));
      await Deno.writeFile(path, bytes);
    }],
    ["written in a newer format", (path: string) => {
      const database = new DatabaseSync(path);
      database.exec("PRAGMA user_version = 99; CREATE TABLE later (a TEXT);");
      database.close();
    }],
  ] as const
) {
  Deno.test(`B6 an index that was ${what} is rebuilt from the files`, async () => {
    await using home = await memory();
    for (let at = 0; at < 200; at++) await home.note(`plum ${at}`);
    await writeSession(home.paths.sessions, chat, [user("a session's plum pear")]);
    const first = new MemoryIndex(home.paths.index, home.paths.sessions, home.files);
    assertEquals((await first.search("pear", secret)).hits.length, 1);
    first.close();
    await damage(home.paths.index);
    const index = home.open();
    assertEquals(await found(index, "pear"), [`${chat}: a session's plum pear`]);
    assertEquals((await found(index, "199")).length, 1);
  });
}

Deno.test("B6 an index that is taken away while it is open is rebuilt by the next search that meets it", async () => {
  await using home = await memory();
  await home.note("a plum");
  const index = home.open();
  assertEquals((await found(index, "plum")).length, 1);
  const other = new DatabaseSync(home.paths.index);
  other.exec("DROP TABLE items");
  other.close();
  await home.note("a pear");
  assertEquals((await found(index, "plum pear")).sort(), ["notes: a pear", "notes: a plum"]);
});

Deno.test("B6 a session that was deleted while loopd was down is found no more", async () => {
  await using home = await memory();
  await writeSession(home.paths.sessions, chat, [user("a plum")]);
  assertEquals((await found(home.open(), "plum")).length, 1);
  await Deno.remove(`${home.paths.sessions}/${chat}`, { recursive: true });
  assertEquals(await found(home.open(), "plum"), []);
});

Deno.test("B6 an entry that was removed is found no more, nor is a session that was deleted", async () => {
  await using home = await memory();
  await home.note("first plum");
  await home.note("second plum");
  await writeSession(home.paths.sessions, chat, [user("third plum")]);
  const index = home.open();
  assertEquals((await found(index, "plum")).length, 3);
  await home.files.remove("notes", "first plum", { session: chat, label: privateTrusted });
  await Deno.remove(`${home.paths.sessions}/${chat}`, { recursive: true });
  index.note(chat);
  assertEquals(await found(index, "plum"), ["notes: second plum"]);
});

Deno.test("B6 a line that the owner changed by hand is found as it stands now, under the label that stands there now", async () => {
  await using home = await memory();
  await home.note("first plum", { class: "public", untrusted: false });
  for (let at = 0; at < 10; at++) await home.note(`other note ${at}`);
  const index = home.open();
  assertEquals((await index.search("plum", { class: "public", untrusted: false })).hits.length, 1);
  const text = await Deno.readTextFile(home.paths.notes);
  await Deno.writeTextFile(home.paths.notes, text.replace("[public, ", "[secret, "));
  assertEquals((await index.search("plum", { class: "public", untrusted: false })).hits, []);
  assertEquals((await index.search("plum", secret)).hits.map(({ label }) => label), [secret]);
});

Deno.test("B6 searches that come at once agree, and leave every item in the index once", async () => {
  await using home = await memory();
  for (let at = 0; at < 20; at++) await home.note(`plum ${at}`);
  for (const name of ["chat-b", "chat-c", "chat-d"]) {
    await writeSession(home.paths.sessions, parseSessionId(name), [user(`pear of ${name}`)]);
  }
  const index = home.open();
  const answers = await Promise.all([1, 2, 3, 4, 5].map(() => index.search("pear", secret)));
  for (const { hits } of answers) assertEquals(hits.length, 3);
  assertEquals((await found(index, "17")).length, 1);
});

Deno.test("B6 of very many matches the newest are ranked, and the answer says that there were more", async () => {
  await using home = await memory();
  const lines = (count: number) => Array.from({ length: count }, (_, at) => `plum ${at}\n`).join("");
  await Deno.writeTextFile(home.paths.notes, lines(rankedMatchesMax));
  const index = home.open();
  assertEquals((await index.search("plum", secret)).partial, false);
  await Deno.writeTextFile(home.paths.notes, lines(rankedMatchesMax + 1));
  const { hits, partial } = await index.search("plum", secret);
  assertEquals([partial, hits.length], [true, recallHitsMax]);
  assertEquals(hits[0].snippet, `plum ${rankedMatchesMax}`);
});

Deno.test("B6 the hit with the most of the words comes first, among equals the newest", async () => {
  await using home = await memory();
  for (const text of ["red plum", "plum", "red plum on a plate", "red"]) await home.note(text);
  assertEquals((await found(home.open(), "red plum")).slice(0, 2), [
    "notes: red plum on a plate",
    "notes: red plum",
  ]);
});

for (
  const query of [
    '"',
    '""',
    "plum AND OR NOT",
    "plum*",
    "text:plum",
    "NEAR(plum pear)",
    "^plum",
    "(",
    "; DROP TABLE items",
    "-plum",
    "plum\u0000",
    "{}",
    "plum " + "word ".repeat(1_000),
  ]
) {
  Deno.test(`B6 the query ${JSON.stringify(query.slice(0, 30))} is words, never a command to the index`, async () => {
    await using home = await memory();
    await home.note("a plum");
    const index = home.open();
    const { hits } = await index.search(query, secret);
    assertEquals(hits.length, /plum/.test(query) ? 1 : 0);
    assertEquals((await found(index, "plum")).length, 1);
  });
}

Deno.test("B6 a search for no words finds nothing, and words of any script are words", async () => {
  await using home = await memory();
  for (const text of ["Grüße aus Köln", "привет мир", "日本語 テスト", "٣ plums"]) await home.note(text);
  const index = home.open();
  assertEquals(await found(index, "?! … 😀"), []);
  for (const query of ["grüße", "ПРИВЕТ", "日本語", "٣"]) {
    assertEquals((await found(index, query)).length, 1, query);
  }
});

Deno.test("B6 forgetting a source leaves the others", async () => {
  await using home = await memory();
  await home.note("a plum");
  await writeSession(home.paths.sessions, chat, [user("another plum")]);
  const index = home.open();
  assertEquals((await found(index, "plum")).length, 2);
  index.forget(chat);
  assertEquals(await found(index, "plum"), ["notes: a plum"]);
});

Deno.test("B6 a folder that holds no session, and a log that is none, are passed over", async () => {
  await using home = await memory();
  await Deno.mkdir(`${home.paths.sessions}/chat-empty`);
  await Deno.mkdir(`${home.paths.sessions}/not_a_session`);
  await Deno.mkdir(`${home.paths.sessions}/chat-odd`);
  await Deno.writeTextFile(`${home.paths.sessions}/chat-odd/log.jsonl`, "plum\n{}\n[1]\n");
  await home.note("a plum");
  const hits = await found(home.open(), "plum");
  assertEquals(hits, ["notes: a plum"]);
  assert(hits.length === 1);
});
