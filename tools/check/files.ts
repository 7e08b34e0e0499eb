// Which files the checks read: every .ts and .tsx file below the top-level folders of our own code. Nothing outside them is opened.

import { scan, type SourceFile } from "./scan.ts";

export const sourceFolders = ["core", "loopd", "brokerd", "tools", "tests"] as const;

/** All sources below `root`, in the order of their paths. */
export async function loadSources(root: string): Promise<SourceFile[]> {
  const paths: string[] = [];
  for (const folder of sourceFolders) await collect(root, folder, paths);
  return await Promise.all(
    paths.sort().map(async (path) => {
      const text = await Deno.readTextFile(`${root}/${path}`);
      return { path, text, tokens: scan(text) };
    }),
  );
}

async function collect(root: string, folder: string, paths: string[]): Promise<void> {
  let entries: Deno.DirEntry[];
  try {
    entries = await Array.fromAsync(Deno.readDir(`${root}/${folder}`));
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return;
    throw error;
  }
  for (const entry of entries) {
    const path = `${folder}/${entry.name}`;
    if (entry.isDirectory) await collect(root, path, paths);
    else if (entry.isFile && /\.tsx?$/.test(entry.name)) paths.push(path);
  }
}
