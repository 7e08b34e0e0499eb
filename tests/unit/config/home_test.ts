// F34: which home is meant, and what makes one unfit, each refusal beside the nearest home that is accepted.

import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { UsageError } from "../../../core/errors.ts";
import { chooseHome, homeFaults, homePaths, pathFaults, resolveHome } from "../../../core/home.ts";
import { socketPathBytesMax } from "../../../core/limits.ts";

Deno.test("the home is --home, else BOXMAKER_HOME, else .boxmaker under HOME, always absolute", () => {
  const env = { BOXMAKER_HOME: "/b", HOME: "/h", INIT_CWD: "/typed/here" };
  assertEquals(chooseHome({ flag: "/f", env }), "/f");
  assertEquals(chooseHome({ flag: "own/../box/", env }), "/typed/here/box");
  assertEquals(chooseHome({ env }), "/b");
  assertEquals(chooseHome({ env: { HOME: "/h" } }), "/h/.boxmaker");
  assertThrows(() => chooseHome({ env: {} }), UsageError, "give --home DIR");
});

Deno.test("F34 a home one byte too long for its sockets is refused, the longest that fits is accepted", () => {
  const fits = "/" + "é".repeat(20) + "h".repeat(50);
  const longest = new TextEncoder().encode(homePaths(fits).brokerSocket).length;
  assertEquals(longest, socketPathBytesMax);
  assertEquals(pathFaults(fits), []);
  assertStringIncludes(pathFaults(fits + "h")[0].text, "too long");
});

Deno.test("F34 a comma in the home's path is refused", () => {
  assertStringIncludes(pathFaults("/a,b")[0].text, "holds a comma");
  assertEquals(pathFaults("/a;b c"), []);
});

Deno.test("F34 a home that is absent and could not be made at its path is told what is wrong with the path alone", () => {
  const texts = (home: string) => homeFaults(home).map(({ text }) => text);
  const long = `/nowhere/${"h".repeat(120)}`;
  for (const home of ["/nowhere/a,b", long]) {
    assertEquals(
      texts(home),
      pathFaults(home).map(({ text }) => text),
    );
  }
  assertEquals(texts("/nowhere/a"), [
    "this home does not exist; make it with: deno task init --home /nowhere/a",
  ]);
});

Deno.test("F34 a home that is absent, a file, open to others, another user's or behind a link is refused with what to run", async () => {
  const base = resolveHome(await Deno.makeTempDir({ prefix: "boxmaker-" }));
  try {
    const home = `${base}/home`;
    const texts = (path: string, uid?: number) => homeFaults(path, { uid }).map(({ text }) => text);
    assertEquals(texts(home), [`this home does not exist; make it with: deno task init --home ${home}`]);
    await Deno.mkdir(home, { mode: 0o700 });
    assertEquals(texts(home, Deno.uid() ?? undefined), []);
    assertStringIncludes(texts(home, (Deno.uid() ?? 0) + 1)[0], "belongs to user");
    await Deno.chmod(home, 0o750);
    assertEquals(texts(home), [`others may enter this home (mode 0750); run: chmod 700 ${home}`]);
    await Deno.chmod(home, 0o700);
    await Deno.symlink(base, `${base}/link`);
    assertEquals(resolveHome(`${base}/link/home`), home);
    assertEquals(texts(`${base}/link/home`), [`leads through a symbolic link to ${home}; use that path`]);
    await Deno.writeTextFile(`${base}/file`, "");
    assertEquals(texts(`${base}/file`), ["is not a directory; a home is one"]);
  } finally {
    await Deno.remove(base, { recursive: true });
  }
});
