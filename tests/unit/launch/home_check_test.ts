// What doctor says of the files of a home in which nothing runs, beside the home whose launcher runs.

import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { homePaths } from "../../../core/home.ts";
import { homeCheck } from "../../../tools/launch/home_check.ts";
import { takeHomeLock } from "../../../tools/launch/lock.ts";
import { withHome } from "../config/home_dir.ts";

const sound = { loopd: '[inference]\nurl = "http://127.0.0.1:8080"\n' };

Deno.test("F34 doctor checks the files where nothing runs, and says nothing of them where a launcher does", () =>
  withHome(sound, async (paths) => {
    await Deno.mkdir(paths.run, { mode: 0o700 });
    assertEquals(await homeCheck(paths), [
      `nothing runs in ${paths.home}; its files were checked as deno task up would`,
      "ok    files    loopd.toml, brokerd.toml, grants.toml and the secrets that they name are sound",
    ]);
    const lock = takeHomeLock(paths);
    assertEquals(await homeCheck(paths), []);
    lock?.release();
  }));

Deno.test("F34 doctor names every fault of the files that up would refuse, and a secret that is not there", () =>
  withHome({
    loopd: "[slots]\nmain = 2\nbackground = 2\n",
    brokerd: '[consult]\nurl = "https://api.example.com/"\nmodel = "m"\nsecret = "absent"\n',
  }, async (paths) => {
    const [head, ...lines] = await homeCheck(paths);
    assertStringIncludes(head, "nothing runs in ");
    assertEquals(lines.map((line) => line.startsWith("FAIL  files    ")), [true, true]);
    assertMatch(lines[0], /loopd\.toml:\d: slots/);
    assertStringIncludes(lines[1], `${paths.secrets}/absent`);
  }));

Deno.test("F34 doctor says that no model is named, and how a home that is absent is made", async () => {
  await withHome({ loopd: "" }, async (paths) => {
    assertStringIncludes(
      (await homeCheck(paths))[2],
      "names no [inference] url: deno task chat brings a practice model",
    );
  });
  assertStringIncludes((await homeCheck(homePaths("/nowhere/at/all")))[1], "make it with: deno task init");
});
