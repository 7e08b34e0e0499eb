// C11, B9: a secret is accepted only where nobody else could have read or changed it, and never stands in a text.

import { assertEquals, assertStringIncludes } from "@std/assert";
import { loadSecret } from "../../../core/secrets.ts";
import { withHome } from "./home_dir.ts";

const planted = "sk-PLANTED-0123456789";

/** What loading the secret `key` says after `spoil` has done its work on it: the fault's text, or "accepted". */
async function verdict(
  text: string,
  spoil: (path: string, directory: string) => Promise<void>,
): Promise<string> {
  let said = "";
  await withHome({ secrets: { key: text } }, async (paths) => {
    const path = `${paths.secrets}/key`;
    await spoil(path, paths.secrets);
    const result = await loadSecret(path, { checkDirectories: [paths.home, paths.secrets] });
    if ("value" in result) {
      said = result.value === text.replace(/\n$/, "") ? "accepted" : "another value";
      return;
    }
    assertEquals(result.fault.runbook, "consult-secret-unreadable");
    said = `${result.fault.file}: ${result.fault.text}`.replaceAll(paths.home, "HOME");
  });
  assertEquals(said.includes("PLANTED"), false);
  return said;
}

const nothing = () => Promise.resolve();

Deno.test("C11 a secret readable by others is refused with its mode and the command; 0600 and 0400 are accepted", async () => {
  for (const mode of [0o600, 0o400]) {
    assertEquals(await verdict(planted, (path) => Deno.chmod(path, mode)), "accepted");
  }
  for (const mode of [0o640, 0o604, 0o644, 0o620, 0o700]) {
    const octal = mode.toString(8).padStart(4, "0");
    assertEquals(
      await verdict(planted, (path) => Deno.chmod(path, mode)),
      `HOME/secrets/key: this secret's mode is ${octal}, wanted 0600 or stricter; run: chmod 600 HOME/secrets/key`,
    );
  }
});

Deno.test("C11 a missing secret says which file and what to run", async () => {
  assertEquals(
    await verdict(planted, (path) => Deno.remove(path)),
    "HOME/secrets/key: this secret does not exist; write the key into it and run: chmod 600 HOME/secrets/key",
  );
});

Deno.test("C11 a directory on the way that others may write is refused, one they may read is not", async () => {
  assertEquals(await verdict(planted, (_, directory) => Deno.chmod(directory, 0o755)), "accepted");
  assertStringIncludes(
    await verdict(planted, (_, directory) => Deno.chmod(directory, 0o770)),
    "HOME/secrets: others may write this directory (mode 0770); run: chmod 700 HOME/secrets",
  );
});

Deno.test("C11 a link, a directory and a pipe in place of the file are refused without waiting", async () => {
  const replaced = (make: (path: string) => Promise<unknown>) => async (path: string) => {
    await Deno.rename(path, `${path}-moved`);
    await make(path);
  };
  assertStringIncludes(
    await verdict(planted, replaced((path) => Deno.symlink(`${path}-moved`, path))),
    "is a symbolic link; a secret is one regular file",
  );
  assertStringIncludes(await verdict(planted, replaced((path) => Deno.mkdir(path))), "is not a regular file");
  assertStringIncludes(
    await verdict(
      planted,
      replaced((path) => new Deno.Command("mkfifo", { args: ["-m", "600", path] }).output()),
    ),
    "is not a regular file",
  );
});

Deno.test("B9 a value is 1 to 512 visible ASCII characters after one final newline", async () => {
  const accepted = ["k", "k\n", "k".repeat(512), "k".repeat(512) + "\n"];
  const refused = ["", "\n", "k\n\n", " k", "k k", "k\r\n", "kä", "k\0", "k".repeat(513), "k".repeat(5_000)];
  for (const text of accepted) assertEquals(await verdict(text, nothing), "accepted");
  for (const text of refused) {
    assertStringIncludes(
      await verdict(text, nothing),
      "this secret is not one line of 1 to 512 visible ASCII characters",
    );
  }
});
