// A copy of the checkout in a temporary directory, in which one fault at a time is applied and taken back. The checkout itself is only read.

import { dirname, join } from "node:path";

/** What the tests need of the checkout. */
const parts = ["deno.json", "deno.lock", "core", "loopd", "brokerd", "tools", "tests", "docs", "README.md"];

export interface Scratch extends AsyncDisposable {
  readonly root: string;
  /** Runs `body` while `find` is replaced. Throws where `find` does not stand exactly once in the file. */
  withReplaced<T>(
    change: { file: string; find: string; replace: string },
    body: () => Promise<T>,
  ): Promise<T>;
}

export async function copyCheckout(checkout: string): Promise<Scratch> {
  const root = await Deno.realPath(await Deno.makeTempDir({ prefix: "bx-mutate-" }));
  const remove = () => Deno.remove(root, { recursive: true });
  try {
    for (const part of parts) await copy(join(checkout, part), join(root, part));
  } catch (error) {
    await remove();
    throw error;
  }
  return {
    root,
    async withReplaced(change, body) {
      const path = join(root, change.file);
      const before = await Deno.readTextFile(path);
      await Deno.writeTextFile(path, replacedOnce(before, change));
      try {
        return await body();
      } finally {
        await Deno.writeTextFile(path, before);
      }
    },
    [Symbol.asyncDispose]: remove,
  };
}

/** `text` with `find` replaced. Throws where it does not stand there exactly once. */
export function replacedOnce(text: string, { file, find, replace }: {
  file: string;
  find: string;
  replace: string;
}): string {
  const count = text.split(find).length - 1;
  if (count !== 1) {
    throw new Error(`${file}: ${JSON.stringify(find)} stands there ${count} times, wanted once`);
  }
  return text.replace(find, () => replace);
}

async function copy(from: string, to: string): Promise<void> {
  if ((await Deno.stat(from)).isFile) {
    await Deno.mkdir(dirname(to), { recursive: true });
    return await Deno.copyFile(from, to);
  }
  for await (const { name, isSymlink } of Deno.readDir(from)) {
    if (!isSymlink) await copy(join(from, name), join(to, name));
  }
}
