// What a power cut would leave: only bytes that were synced count here. The real log writes through files that keep count of what was
// written and what was synced, and real syncs of directories are seen as they happen.

import { assert, assertEquals } from "@std/assert";
import { basename } from "node:path";
import type { SegmentFile } from "../../brokerd/audit_log.ts";
import { auditFolder, denial } from "../support/audit_folder.ts";
import { allowPrivate, brokerRig } from "../support/broker_rig.ts";

/** A disk that says what it would keep. */
class CountingDisk {
  /** By the name that the file has in the end. */
  readonly written = new Map<string, string>();
  readonly synced = new Map<string, string>();
  directorySyncs = 0;
  /** Asked before each sync of a segment counts. */
  beforeSync: (name: string) => Promise<void> | void = () => {};
  readonly faults: string[] = [];

  readonly openFile = (path: string, options: Deno.OpenOptions): SegmentFile => {
    const file = Deno.openSync(path, options);
    const name = basename(path).replace(/\.tmp$/, "");
    const isDraft = path.endsWith(".tmp");
    if (isDraft) { for (const map of [this.written, this.synced]) map.set(name, ""); }
    const decoder = new TextDecoder();
    let syncs = 0;
    return {
      writeSync: (bytes) => {
        const count = file.writeSync(bytes);
        const text = decoder.decode(bytes.subarray(0, count));
        if (name === "head.json") this.#checkHead(text);
        this.written.set(name, (this.written.get(name) ?? "") + text);
        return count;
      },
      syncData: async () => {
        // head.json replaces the one before it; a segment's name must not stand there before its opening is safe.
        if (isDraft && syncs++ === 0 && name !== "head.json" && exists(path.replace(/\.tmp$/, ""))) {
          this.faults.push(`${name} stood in its place before it was synced`);
        }
        const upTo = this.written.get(name) ?? "";
        if (name !== "head.json") await this.beforeSync(name);
        await file.syncData();
        this.synced.set(name, upTo);
      },
      close: () => file.close(),
    };
  };

  /** The last seq that would survive. */
  syncedSeq(): number {
    const lines = [...this.synced].filter(([name]) => name !== "head.json").flatMap(([, text]) =>
      text.split("\n").slice(0, -1)
    );
    return Math.max(0, ...lines.map((line) => JSON.parse(line).seq));
  }

  assertAllSynced(): void {
    assertEquals([...this.synced].sort(), [...this.written].sort());
    assertEquals(this.faults, []);
  }

  #checkHead(text: string): void {
    const { seq } = JSON.parse(text);
    if (seq > this.syncedSeq()) {
      this.faults.push(`head.json was to name seq ${seq}, and ${this.syncedSeq()} was synced`);
    }
  }
}

function exists(path: string): boolean {
  try {
    Deno.statSync(path);
    return true;
  } catch {
    return false;
  }
}

/** Counts the syncs of directories while `body` runs. */
async function countingDirectorySyncs(disk: CountingDisk, body: () => Promise<void>): Promise<void> {
  const { sync } = Deno.FsFile.prototype;
  Deno.FsFile.prototype.sync = async function (this: Deno.FsFile) {
    if ((await this.stat()).isDirectory) disk.directorySyncs++;
    await sync.call(this);
  };
  try {
    await body();
  } finally {
    Deno.FsFile.prototype.sync = sync;
  }
}

Deno.test("B8 what a commit acknowledged survives a power cut, over segments too, and no head names more", async () => {
  const disk = new CountingDisk();
  await using folder = await auditFolder();
  await countingDirectorySyncs(disk, async () => {
    const { log } = await folder.open({ openFile: disk.openFile, segmentBytesMax: 2_000 });
    for (let call = 1; call <= 30; call++) {
      const seq = log.append(denial("chat-a", call));
      await log.commit();
      assert(disk.syncedSeq() >= seq, `seq ${seq} was acknowledged and ${disk.syncedSeq()} was synced`);
    }
    const segments = [...disk.written.keys()].filter((name) => name !== "head.json");
    assert(segments.length > 5);
    assert(disk.directorySyncs >= segments.length, `${disk.directorySyncs} syncs of the directory`);
    await log.close();
  });
  disk.assertAllSynced();
});

Deno.test("P2 B8 nothing is sent before its intent is synced, and no answer is released before its decision and the raised label are", async () => {
  const disk = new CountingDisk();
  await using rig = await brokerRig({ grants: allowPrivate, audit: { openFile: disk.openFile } });
  await rig.label("chat-a", { class: "private", untrusted: false });
  const gates: PromiseWithResolvers<void>[] = [];
  let entered = Promise.withResolvers<void>();
  disk.beforeSync = async () => {
    const gate = Promise.withResolvers<void>();
    gates.push(gate);
    entered.resolve();
    entered = Promise.withResolvers();
    await gate.promise;
  };
  /** Lets brokerd do whatever it would do meanwhile: each round is a request that it answers without its log. */
  const rounds = async () => {
    for (let round = 0; round < 20; round++) await rig.loop("GET", "/v1/hello");
  };

  const intentSync = entered.promise;
  const answer = rig.call("chat-a", 1);
  try {
    await intentSync;
    await rounds();
    assertEquals(rig.endpoint.connections, 0);
    const pending = () => {
      const [[name, written]] = [...disk.written].filter(([name]) => name !== "head.json");
      return written.slice(disk.synced.get(name)!.length).split("\n").slice(0, -1).map((line) =>
        JSON.parse(line)
      );
    };
    assertEquals(pending().map(({ kind }) => kind), ["intent"]);

    const decisionSync = entered.promise.then(() => "the sync");
    gates[0].resolve();
    assertEquals(await Promise.race([decisionSync, answer.then(() => "the answer")]), "the sync");
    assertEquals(rig.endpoint.requests.length, 1);
    await rounds();
    assertEquals(await rig.callState("chat-a", 1), { status: "running" });
    assertEquals(pending().map(({ kind, label }) => [kind, label.untrusted]), [
      ["decision", false],
      ["label", true],
    ]);
  } finally {
    // Also where an assertion failed: brokerd would wait for its disk for ever.
    disk.beforeSync = () => {};
    for (const gate of gates) gate.resolve();
  }
  assertEquals((await answer).status, "ok");
  await rig.stop();
  disk.assertAllSynced();
});
