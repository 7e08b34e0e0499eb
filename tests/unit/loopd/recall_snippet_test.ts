// What recall shows of a hit is the hit's own text: a snippet of another item would carry that item's words under this one's label.

import { assertEquals } from "@std/assert";
import { systemClock } from "../../../core/clock.ts";
import { MemoryIndex } from "../../../loopd/memory/index.ts";
import { MemoryFiles } from "../../../loopd/memory/memory_files.ts";
import { tempHome } from "../../support/temp_home.ts";

Deno.test("B6 each hit shows its own text under its own label: a private session reads no word of a secret note that matches as well", async () => {
  await using home = await tempHome();
  const { paths } = home;
  await Deno.writeTextFile(
    paths.notes,
    "- [secret, chat-a, 2026-12-01] The safe opens with 4711.\n" +
      "- [private, untrusted, chat-b, 2026-12-01] A stranger asked about the safe.\n" +
      "- [private, chat-c, 2026-12-01] The safe stands in the cellar.\n",
  );
  const index = new MemoryIndex(
    paths.index,
    paths.sessions,
    new MemoryFiles(paths, systemClock, "private"),
  );
  try {
    const read = async (sensitivity: "private" | "secret") =>
      (await index.search("safe", { class: sensitivity, untrusted: false })).hits
        .map(({ label, snippet }) => [label.class, label.untrusted, snippet]);
    const visible = [
      ["private", false, "The safe stands in the cellar."],
      ["private", true, "A stranger asked about the safe."],
    ];
    assertEquals(await read("private"), visible);
    assertEquals(await read("secret"), [...visible, ["secret", false, "The safe opens with 4711."]]);
  } finally {
    index.close();
  }
});
