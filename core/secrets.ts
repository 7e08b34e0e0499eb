// The secret store: one file per secret, accepted only where nobody else could have read or changed it (C11, design: the consult request).
// The value leaves this file in the returned object alone; no text here or elsewhere ever holds it.

import { dirname } from "node:path";
import { describeError, type Fault } from "./errors.ts";
import { octal } from "./home.ts";
import { secretBytesMax } from "./limits.ts";

export interface SecretChecks {
  /**
   * Directories on the way to the file, none of which others may write, and whose owner must own the file. A role names those it may
   * look at; the launcher has checked the whole way before.
   */
  readonly checkDirectories: readonly string[];
}

export type SecretResult = { readonly value: string } | { readonly fault: Fault };

/** The value without its final newline, or what is wrong with the file and the command that mends it. */
export async function loadSecret(path: string, { checkDirectories }: SecretChecks): Promise<SecretResult> {
  const refuse = (file: string, text: string): SecretResult => ({
    fault: { file, text, runbook: "consult-secret-unreadable" },
  });
  const owners = new Set<number | null>();
  for (const directory of checkDirectories) {
    let stat: Deno.FileInfo;
    try {
      stat = await Deno.lstat(directory);
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) {
        return refuse(
          directory,
          `does not exist; run: mkdir -m 700 ${directory}, and put the secret into ${path}`,
        );
      }
      return refuse(directory, `cannot be looked at (${errorName(error)})`);
    }
    if (!stat.isDirectory) {
      return refuse(directory, "is not a directory; secrets lie in one that is yours alone");
    }
    if (stat.mode !== null && (stat.mode & 0o022) !== 0) {
      return refuse(
        directory,
        `others may write this directory (mode ${octal(stat.mode)}); run: chmod 700 ${directory}`,
      );
    }
    owners.add(stat.uid);
  }

  let before: Deno.FileInfo;
  let file: Deno.FsFile;
  try {
    // What lies here is looked at before it is opened: opening a pipe would wait, and Deno's open follows a link.
    before = await Deno.lstat(path);
    if (before.isSymlink) {
      return refuse(path, "is a symbolic link; a secret is one regular file, so put the file itself here");
    }
    if (!before.isFile) return refuse(path, "is not a regular file; a secret is one");
    file = await Deno.open(path, { read: true });
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) {
      return refuse(path, `this secret does not exist; write the key into it and run: chmod 600 ${path}`);
    }
    return refuse(path, `this secret cannot be opened (${errorName(error)}); run: chmod 600 ${path}`);
  }
  using opened = file;
  const stat = await opened.stat();
  if (stat.dev !== before.dev || stat.ino !== before.ino || !stat.isFile) {
    return refuse(path, "was exchanged while it was opened; look at who else writes in " + dirname(path));
  }
  if (stat.mode !== null && (stat.mode & 0o177) !== 0) {
    return refuse(
      path,
      `this secret's mode is ${octal(stat.mode)}, wanted 0600 or stricter; run: chmod 600 ${path}`,
    );
  }
  if (owners.size > 0 && !(owners.size === 1 && owners.has(stat.uid))) {
    return refuse(
      path,
      `belongs to another user than its directory; run: chown --reference=${dirname(path)} ${path}`,
    );
  }
  const bytes = new Uint8Array(secretBytesMax + 1);
  let length = 0;
  while (length < bytes.length) {
    const count = await opened.read(bytes.subarray(length));
    if (count === null) break;
    length += count;
  }
  const value = new TextDecoder().decode(bytes.subarray(0, length)).replace(/\n$/, "");
  if (!/^[\x21-\x7e]{1,512}$/.test(value)) {
    return refuse(
      path,
      "this secret is not one line of 1 to 512 visible ASCII characters without spaces; write the key alone into it",
    );
  }
  return { value };
}

function errorName(error: unknown): string {
  return error instanceof Error ? error.name : describeError(error);
}
