// identity.md and notes.md: who may write what where, and who may take it away again.

import { assert, assertEquals } from "@std/assert";
import { parseSessionId } from "../../../core/ids.ts";
import { type Label, sensitivityClasses } from "../../../core/labels.ts";
import { MemoryFiles } from "../../../loopd/memory/memory_files.ts";
import { fakeClock } from "../../support/fake_clock.ts";
import { namesIn, textOf } from "../../support/transcript.ts";
import { tempHome } from "../../support/temp_home.ts";

const session = parseSessionId("chat-a");
const trusted: Label = { class: "private", untrusted: false };
const untrusted: Label = { class: "private", untrusted: true };
const secret: Label = { class: "secret", untrusted: false };
const by = (label: Label) => ({ session, label });

async function memory(ownersClass: Label["class"] = "private") {
  const home = await tempHome();
  const files = new MemoryFiles(home.paths, fakeClock(), ownersClass);
  const texts = async () => ({
    identity: await textOf(home.paths.identity),
    notes: await textOf(home.paths.notes),
  });
  return { ...home, files, texts };
}

const labels: Label[] = sensitivityClasses.flatMap((sensitivity) =>
  [false, true].map((untrusted) => ({ class: sensitivity, untrusted }))
);

for (const label of labels) {
  const mayWrite = label.class !== "secret" && !label.untrusted;
  const target = mayWrite ? "identity" : "notes";
  Deno.test(`S12 what a ${label.class} ${label.untrusted ? "untrusted" : "trusted"} session adds to identity lands in ${target} under its label`, async () => {
    await using home = await memory();
    assertEquals(await home.files.add("identity", "likes tea", by(label)), { kind: "added", target });
    const line = `- [${label.class}${label.untrusted ? ", untrusted" : ""}, chat-a, 2026-12-01] likes tea\n`;
    assertEquals(await home.texts(), { identity: mayWrite ? line : "", notes: mayWrite ? "" : line });
  });
}

Deno.test("S12 the class that may write identity is the owner's [session] class", async () => {
  await using open = await memory("secret");
  assertEquals(await open.files.add("identity", "x", by(secret)), { kind: "added", target: "identity" });
  await using narrow = await memory("public");
  assertEquals(await narrow.files.add("identity", "x", by(trusted)), { kind: "added", target: "notes" });
});

Deno.test("B6 what is meant for notes lands in notes, whoever writes it", async () => {
  await using home = await memory();
  for (const label of labels) await home.files.add("notes", "x", by(label));
  assertEquals((await home.files.read("notes")).map(({ label }) => label), labels);
  assertEquals(await home.files.read("identity"), []);
});

Deno.test("B6 entries go behind what the owner wrote by hand, a file without a last newline included", async () => {
  await using home = await memory();
  await Deno.writeTextFile(home.paths.notes, "# My notes\n\nfeeds the cat at seven");
  await home.files.add("notes", "likes tea", by(trusted));
  assertEquals(
    (await home.texts()).notes,
    "# My notes\n\nfeeds the cat at seven\n- [private, chat-a, 2026-12-01] likes tea\n",
  );
  assertEquals((await home.files.read("notes")).map(({ text, session }) => [text, session]), [
    ["feeds the cat at seven", undefined],
    ["likes tea", session],
  ]);
});

Deno.test("B6 a text with nothing readable in it is refused, and no file is made", async () => {
  await using home = await memory();
  for (const text of ["", " \n\t ", "\u0000\u0007", "\u2028"]) {
    const change = await home.files.add("notes", text, by(trusted));
    assertEquals(change.kind, "refused", JSON.stringify(text));
  }
  assertEquals(await namesIn(home.paths.memory), []);
});

Deno.test("B6 adds that come at once are all kept, each on its own line", async () => {
  await using home = await memory();
  const texts = Array.from({ length: 40 }, (_, at) => `fact ${at}`);
  await Promise.all(texts.map((text) => home.files.add("notes", text, by(trusted))));
  assertEquals((await home.files.read("notes")).map(({ text }) => text), texts);
});

Deno.test("B6 an entry is removed by exactly its text, once, and its neighbours stay byte for byte", async () => {
  await using home = await memory();
  await Deno.writeTextFile(home.paths.notes, "# Notes\n- likes tea\nlikes tea too\n");
  await home.files.add("notes", "likes tea", by(trusted));
  const refused = await home.files.remove("notes", "likes te", by(trusted));
  assertEquals(refused, { kind: "refused", text: "no entry of notes has exactly this text" });
  assertEquals(await home.files.remove("notes", "likes tea", by(trusted)), {
    kind: "removed",
    target: "notes",
  });
  assertEquals(
    (await home.texts()).notes,
    "# Notes\nlikes tea too\n- [private, chat-a, 2026-12-01] likes tea\n",
  );
  assertEquals((await home.files.remove("notes", "likes tea", by(trusted))).kind, "removed");
  assertEquals((await home.files.remove("notes", "likes tea", by(trusted))).kind, "refused");
  assertEquals(await namesIn(home.paths.memory), ["notes.md"]);
});

Deno.test("B6 a removed text may be given as it was added, line ends and tags included", async () => {
  await using home = await memory();
  const text = "two\nlines with <b>a tag</b>";
  await home.files.add("notes", text, by(trusted));
  assertEquals((await home.files.remove("notes", text, by(trusted))).kind, "removed");
});

Deno.test("S12 an untrusted session removes what untrusted sessions wrote, never what the owner or a trusted session did", async () => {
  await using home = await memory();
  await Deno.writeTextFile(home.paths.notes, "the owner's\n");
  await home.files.add("notes", "trusted's", by(trusted));
  await home.files.add("notes", "untrusted's", by(untrusted));
  const outcomes = [];
  for (const text of ["the owner's", "trusted's", "untrusted's"]) {
    outcomes.push((await home.files.remove("notes", text, by(untrusted))).kind);
  }
  assertEquals(outcomes, ["refused", "refused", "removed"]);
});

Deno.test("S12 a session removes only what it may see: a private one no secret, a secret one both", async () => {
  await using home = await memory();
  await home.files.add("notes", "secret's", by(secret));
  await home.files.add("notes", "private's", by(trusted));
  assertEquals((await home.files.remove("notes", "secret's", by(trusted))).kind, "refused");
  assertEquals((await home.files.remove("notes", "secret's", by(secret))).kind, "removed");
  assertEquals((await home.files.remove("notes", "private's", by(secret))).kind, "removed");
});

Deno.test("S12 identity is not changed from a session that could not have written it", async () => {
  await using home = await memory();
  await home.files.add("identity", "likes tea", by(trusted));
  for (const label of [untrusted, secret]) {
    assertEquals((await home.files.remove("identity", "likes tea", by(label))).kind, "refused");
  }
  assertEquals((await home.files.remove("identity", "likes tea", by(trusted))).kind, "removed");
});

Deno.test("B6 memory files are the owner's alone", async () => {
  await using home = await memory();
  await home.files.add("notes", "a", by(trusted));
  assertEquals(((await Deno.stat(home.paths.notes)).mode ?? 0) & 0o777, 0o600);
  await home.files.add("notes", "b", by(trusted));
  await home.files.remove("notes", "a", by(trusted));
  assertEquals(((await Deno.stat(home.paths.notes)).mode ?? 0) & 0o777, 0o600);
  assert((await home.texts()).notes.endsWith("] b\n"));
});
