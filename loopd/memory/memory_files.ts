// `memory/identity.md` and `memory/notes.md`: read for a baseline, written by the `memory` tool (B6, S12).
// The owner edits the same files by hand, so every operation reads what is there now.

import { type Clock } from "../../core/clock.ts";
import type { SessionId } from "../../core/ids.ts";
import { classAtMost, type Label, labelAtMost, type SensitivityClass } from "../../core/labels.ts";
import type { HomePaths } from "../../core/home.ts";
import { decodeEntries, decodeEntry, encodeEntry, entryText, type MemoryEntry } from "./entries.ts";

export const memoryTargets = ["identity", "notes"] as const;
export type MemoryTarget = typeof memoryTargets[number];

export type MemoryChange =
  /** `target` is where the entry went, which is not always where it was meant to go. */
  | { readonly kind: "added"; readonly target: MemoryTarget }
  | { readonly kind: "removed"; readonly target: MemoryTarget }
  | { readonly kind: "refused"; readonly text: string };

export interface Writer {
  readonly session: SessionId;
  readonly label: Label;
}

export class MemoryFiles {
  #paths: HomePaths;
  #clock: Clock;
  #ownersClass: SensitivityClass;
  #tail: Promise<unknown> = Promise.resolve();

  /** `ownersClass` is `[session] class`: a session above it does not write who the owner is. */
  constructor(paths: HomePaths, clock: Clock, ownersClass: SensitivityClass) {
    this.#paths = paths;
    this.#clock = clock;
    this.#ownersClass = ownersClass;
  }

  async read(target: MemoryTarget): Promise<MemoryEntry[]> {
    return decodeEntries(await this.#readFile(target));
  }

  path(target: MemoryTarget): string {
    return target === "identity" ? this.#paths.identity : this.#paths.notes;
  }

  /**
   * Adds one entry under the writer's label. From an untrusted session, or one above the owner's class, what was meant for `identity`
   * becomes a labelled note: a text that someone else wrote does not say who the owner is (S12).
   */
  add(target: MemoryTarget, text: string, writer: Writer): Promise<MemoryChange> {
    return this.#exclusively(async () => {
      if (entryText(text) === "") return { kind: "refused", text: "text is empty; wanted one fact" };
      const place = target === "identity" && !this.#mayWriteIdentity(writer.label) ? "notes" : target;
      const line = encodeEntry(text, writer.label, writer.session, new Date(this.#clock.now()));
      const file = await this.#readFile(place);
      await this.#append(place, (file === "" || file.endsWith("\n") ? "" : "\n") + line + "\n");
      return { kind: "added", target: place };
    });
  }

  /**
   * Removes the one entry whose text is `text`. A session removes only what it may see, an untrusted one only what untrusted sessions
   * wrote, and identity only where it could write it.
   */
  remove(target: MemoryTarget, text: string, writer: Writer): Promise<MemoryChange> {
    return this.#exclusively(async () => {
      if (target === "identity" && !this.#mayWriteIdentity(writer.label)) {
        return { kind: "refused", text: "identity is not changed from this session" };
      }
      const wanted = entryText(text);
      const lines = (await this.#readFile(target)).split("\n");
      const at = lines.findIndex((line) => {
        const entry = decodeEntry(line);
        return entry !== undefined && entryText(entry.text) === wanted && mayRemove(entry, writer.label);
      });
      if (at === -1) return { kind: "refused", text: `no entry of ${target} has exactly this text` };
      lines.splice(at, 1);
      await this.#replace(target, lines.join("\n"));
      return { kind: "removed", target };
    });
  }

  #mayWriteIdentity(label: Label): boolean {
    return labelAtMost(label, { class: this.#ownersClass, untrusted: false });
  }

  async #readFile(target: MemoryTarget): Promise<string> {
    try {
      return await Deno.readTextFile(this.path(target));
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return "";
      throw error;
    }
  }

  async #append(target: MemoryTarget, text: string): Promise<void> {
    const file = await Deno.open(this.path(target), { append: true, create: true, mode: 0o600 });
    try {
      const bytes = new TextEncoder().encode(text);
      for (let at = 0; at < bytes.length;) at += await file.write(bytes.subarray(at));
      await file.syncData();
    } finally {
      file.close();
    }
  }

  async #replace(target: MemoryTarget, text: string): Promise<void> {
    const path = this.path(target);
    const next = `${path}.next`;
    const file = await Deno.open(next, { write: true, create: true, truncate: true, mode: 0o600 });
    try {
      const bytes = new TextEncoder().encode(text);
      for (let at = 0; at < bytes.length;) at += await file.write(bytes.subarray(at));
      await file.sync();
    } finally {
      file.close();
    }
    await Deno.rename(next, path);
  }

  #exclusively<T>(change: () => Promise<T>): Promise<T> {
    const done = this.#tail.then(change);
    this.#tail = done.catch(() => {});
    return done;
  }
}

function mayRemove(entry: MemoryEntry, label: Label): boolean {
  return classAtMost(entry.label.class, label.class) && (!label.untrusted || entry.label.untrusted);
}
