// What `bx backup` and `bx restore` are started with: the flags of their rows in plan.ts, and what is wrong with a command line.

import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { UsageError } from "../../../core/errors.ts";
import { bxArguments } from "../../../tools/launch/command.ts";

const own = { HOME: "/home/me", INIT_CWD: "/home/me/here" };

function flagsOf(...words: string[]) {
  const all = bxArguments(words, { root: "/code", own });
  const program = all.findIndex((word) => word.startsWith("/code/tools/"));
  return { flags: all.filter((word) => word.startsWith("--allow")), program: all.slice(program) };
}

function faultOf(...words: string[]): string {
  const error = assertThrows(() => bxArguments(words, { root: "/code", own }), UsageError) as Error;
  return error.message;
}

Deno.test("bx backup reads the home's parts but secrets and sockets, writes one directory, and reaches nobody", () => {
  const parts = ["loopd.toml", "brokerd.toml", "grants.toml", "memory", "sessions", "audit"].map((name) =>
    `/home/me/.boxmaker/${name}`
  );
  const directories = ["/home/me/here/kept", "/home/me/here/kept.partial"];
  const plain = flagsOf("backup", "kept");
  assertEquals(plain.flags, [
    `--allow-read=${[...parts, ...directories].join(",")}`,
    `--allow-write=${directories.join(",")}`,
  ]);
  assertEquals(plain.program, [
    ...["/code/tools/backup/main.ts", "backup"],
    ...["--home", "/home/me/.boxmaker", "--directory", "/home/me/here/kept"],
  ]);
  const also = ["secrets", "permissions"].map((name) => `/home/me/.boxmaker/${name}`);
  const whole = flagsOf("--json", "backup", "--with-secrets", "kept", "--with-permissions");
  assertEquals(whole.flags[0], `--allow-read=${[...parts, ...also, ...directories].join(",")}`);
  assertEquals(whole.program.slice(-3), ["--with-secrets", "--with-permissions", "--json"]);
});

Deno.test("bx restore reads one directory, writes the home that it makes, and reaches nobody", () => {
  assertEquals(flagsOf("restore", "/kept", "--home", "/new").flags, [
    "--allow-read=/kept,/new,/new.restoring",
    "--allow-write=/new,/new.restoring",
  ]);
});

Deno.test("F34 a command line of backup or restore that does not fit says what is wanted", () => {
  assertStringIncludes(faultOf("backup"), "bx backup: wanted one directory, found 0 (as in: bx backup DIR ");
  assertStringIncludes(faultOf("restore", "a", "b"), "wanted one directory, found 2");
  assertStringIncludes(faultOf("backup", "a", "--with-sercets"), "Unknown option '--with-sercets'");
  assertStringIncludes(faultOf("restore", "a", "--with-secrets"), "Unknown option '--with-secrets'");
  assertStringIncludes(faultOf("backup", "a,b"), "/home/me/here/a,b: holds a comma");
  assertStringIncludes(faultOf("backup", "../.boxmaker/kept"), "lies in the home /home/me/.boxmaker");
  const long = `/${"x".repeat(100)}`;
  assertStringIncludes(faultOf("restore", "a", "--home", long), "is too long");
  assertStringIncludes(faultOf("backup", "a", "--home", "/b,c"), "/b,c: the home's path holds a comma");
  assertEquals(flagsOf("backup", "a", "--home", long).program.slice(2, 4), ["--home", long]);
});

Deno.test("help of backup and restore, and every other command, is bxctl's", () => {
  for (
    const words of [["backup", "--help"], ["restore", "-h"], ["help", "backup"], ["send", "chat-1", "backup"]]
  ) {
    assertStringIncludes(flagsOf(...words).program[0], "/code/tools/bxctl/main.ts");
  }
});
