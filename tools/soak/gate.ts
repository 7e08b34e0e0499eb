// Runs inside a role of the soak, before anything of the role's own: counts the role's changes to the disk one by one, and can hold the
// process still at exactly one of them, so that a kill from outside falls there and nowhere else. It never kills, never changes what is
// written except to stop in the middle of it, and does nothing at all where no order lies.

import { z } from "zod";

/** Where the process is to stand still. */
export const holdSchema = z.strictObject({
  /** Number of the change, from 1, since the process began. */
  step: z.int().min(1),
  /** `torn`: in the middle of a write; of a change that is no write, before it. */
  phase: z.enum(["before", "torn", "after"]),
  /** Share of the bytes of a torn write that reach the file, below 1. */
  share: z.number().min(0).max(1),
});
export type Hold = z.infer<typeof holdSchema>;

export const orderSchema = z.strictObject({
  hold: holdSchema.optional(),
  /** Tell of every change, for counting them. */
  tell: z.boolean().optional(),
});
export type Order = z.infer<typeof orderSchema>;

/** In the one directory that the role's flags let it read: memory for loopd, audit for brokerd. */
export const orderFile = "soak_order.json";

/** What a held or telling role says on its standard output. */
export const saidSchema = z.discriminatedUnion("event", [
  z.strictObject({ event: z.literal("soak-step"), step: z.int(), what: z.string() }),
  z.strictObject({ event: z.literal("soak-held"), step: z.int(), what: z.string() }),
]);
export type Said = z.infer<typeof saidSchema>;

/** A process whose killer went away ends by itself. */
const heldMsMax = 20_000;

/** Wants `--home DIR` among the arguments. */
export function openGate(directory: "memory" | "audit"): void {
  const home = Deno.args[Deno.args.indexOf("--home") + 1];
  const order = readOrder(`${home}/${directory}/${orderFile}`);
  if (order === undefined) return;
  const paths = new WeakMap<Deno.FsFile, string>();
  let steps = 0;

  const say = (said: Said) => console.log(JSON.stringify(said));
  const standStill = (step: number, what: string) => {
    say({ event: "soak-held", step, what });
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, heldMsMax);
    Deno.exit(1);
  };

  /** Called before a change; what it returns, after it. `tear` does the first part of it. */
  const change = (what: string, tear?: (share: number) => void) => {
    const step = ++steps;
    if (order.tell) say({ event: "soak-step", step, what });
    const hold = order.hold?.step === step ? order.hold : undefined;
    if (hold?.phase === "torn") tear?.(hold.share);
    if (hold !== undefined && hold.phase !== "after") standStill(step, what);
    return () => {
      if (hold !== undefined) standStill(step, what);
    };
  };
  const shown = (path: string | URL) => String(path).replace(`${home}/`, "");

  const { write, writeSync, truncate } = Deno.FsFile.prototype;
  const beginWrite = (file: Deno.FsFile, bytes: Uint8Array) =>
    change(
      `write ${paths.get(file) ?? "a file"}`,
      (share) => writeSync.call(file, bytes.subarray(0, Math.floor(share * bytes.length))),
    );
  Deno.FsFile.prototype.write = async function (bytes) {
    const done = beginWrite(this, bytes);
    const count = await write.call(this, bytes);
    done();
    return count;
  };
  Deno.FsFile.prototype.writeSync = function (bytes) {
    const done = beginWrite(this, bytes);
    const count = writeSync.call(this, bytes);
    done();
    return count;
  };
  Deno.FsFile.prototype.truncate = async function (length) {
    const done = change(`truncate ${paths.get(this) ?? "a file"}`);
    await truncate.call(this, length);
    done();
  };

  const { open, openSync, mkdir, rename, remove, writeFile, writeTextFile } = Deno;
  const makes = (options?: Deno.OpenOptions) => options?.create || options?.createNew || options?.truncate;
  Deno.open = async (path, options) => {
    const done = makes(options) ? change(`make ${shown(path)}`) : undefined;
    const file = await open(path, options);
    paths.set(file, shown(path));
    done?.();
    return file;
  };
  Deno.openSync = (path, options) => {
    const done = makes(options) ? change(`make ${shown(path)}`) : undefined;
    const file = openSync(path, options);
    paths.set(file, shown(path));
    done?.();
    return file;
  };
  Deno.mkdir = async (path, options) => {
    const done = change(`mkdir ${shown(path)}`);
    await mkdir(path, options);
    done();
  };
  Deno.rename = async (from, to) => {
    const done = change(`rename to ${shown(to)}`);
    await rename(from, to);
    done();
  };
  Deno.remove = async (path, options) => {
    const done = change(`remove ${shown(path)}`);
    await remove(path, options);
    done();
  };
  Deno.writeFile = async (path, data, options) => {
    const done = change(`write ${shown(path)}`);
    await writeFile(path, data, options);
    done();
  };
  Deno.writeTextFile = async (path, data, options) => {
    const done = change(`write ${shown(path)}`);
    await writeTextFile(path, data, options);
    done();
  };
}

function readOrder(path: string): Order | undefined {
  try {
    return orderSchema.parse(JSON.parse(Deno.readTextFileSync(path)));
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}
