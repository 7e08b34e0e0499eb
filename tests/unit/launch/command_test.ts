// How a typed command line becomes the CLI's own: its home, its directories, its flags, and everything else as it was typed.

import { assertEquals, assertThrows } from "@std/assert";
import { UsageError } from "../../../core/errors.ts";
import { homePaths } from "../../../core/home.ts";
import { bxArguments } from "../../../tools/launch/command.ts";
import { denoArguments, plan } from "../../../tools/launch/plan.ts";

const own = { HOME: "/nowhere/me", INIT_CWD: "/nowhere/typed" };

/** What stands after the program's name, and the read grant. */
function started(...typed: string[]): { words: string[]; read?: string } {
  const args = bxArguments(typed, { root: "/code", own });
  const words = args.slice(args.indexOf("/code/tools/bxctl/main.ts") + 1);
  const read = args.find((word) => word.startsWith("--allow-read="));
  return { words, read: read?.slice("--allow-read=".length).split(",")[0] };
}

Deno.test("bx gives the CLI the home it means, wherever --home stands, and the rest as typed", () => {
  assertEquals(started("send", "chat-1", "hello there"), {
    words: ["--home", "/nowhere/me/.boxmaker", "send", "chat-1", "hello there"],
    read: "/nowhere/me/.boxmaker/audit",
  });
  for (
    const typed of [["--home", "h", "status"], ["status", "--home=h"], [
      "status",
      "--home",
      "/nowhere/typed/h",
    ]]
  ) {
    assertEquals(started(...typed), {
      words: ["--home", "/nowhere/typed/h", "status"],
      read: "/nowhere/typed/h/audit",
    });
  }
});

Deno.test("bx leaves what stands after -- alone, and a --home without a value for the CLI to refuse", () => {
  assertEquals(started("send", "chat-1", "--", "--home", "x").words.slice(2), [
    "send",
    "chat-1",
    "--",
    "--home",
    "x",
  ]);
  assertEquals(started("status", "--home").words.slice(2), ["status", "--home"]);
});

Deno.test("bx audit --dir counts from where it was typed, and is the one directory that the CLI may read", () => {
  const { words, read } = started("audit", "verify", "--dir", "kept/audit");
  assertEquals(words.slice(2), ["audit", "verify", "--dir", "/nowhere/typed/kept/audit"]);
  assertEquals(read, "/nowhere/typed/kept/audit");
});

Deno.test("bx gives exactly the CLI's row of the table, and refuses a path that would split a flag", () => {
  assertEquals(bxArguments(["status"], { root: "/code", own }).slice(0, -4), [
    ...denoArguments("/code"),
    ...plan("bxctl", { paths: homePaths("/nowhere/me/.boxmaker") }),
  ]);
  assertThrows(() => started("--home", "/a,b", "status"), UsageError, "holds a comma");
  assertThrows(() => started("audit", "show", "--dir", "/a,/etc"), UsageError, "holds a comma");
});
