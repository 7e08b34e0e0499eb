// A disk that takes no more: a file-size limit on a real process, a full device and an I/O fault from the kernel itself. After the first
// failed write every call is denied AuditUnavailable until a new start, and nothing more is sent. Before it, and after the new start, the
// same calls are served.

import { assert, assertEquals } from "@std/assert";
import type { SegmentFile } from "../../brokerd/audit_log.ts";
import { verifyAudit } from "../../core/audit/verify.ts";
import { requestJson } from "../../core/wire/client.ts";
import { startConsultEndpoint } from "../../tools/stubs/consult_endpoint.ts";
import { allowAlways, allowPrivate, brokerRig, decisions, readRecords } from "../support/broker_rig.ts";
import { tempHome } from "../support/temp_home.ts";
import { isRunning, startBrokerd } from "./roles.ts";

/** Files of the limited process: 64 blocks of 512 bytes, as POSIX has `ulimit -f`. A write past it fails; the signal is ignored. */
const limited = ["/bin/sh", "-c", "trap '' XFSZ; ulimit -f 64; exec \"$@\"", "sh"];
const callsMax = 400;
const deniedWanted = 20;

Deno.test("F28 a real failed write denies every call from then on, sends nothing more, and a new start repairs, records and serves", async () => {
  await using endpoint = await startConsultEndpoint();
  await using home = await tempHome({
    brokerdToml: `[consult]\nurl = "${endpoint.url}"\nmodel = "m"\nsecret = "consult"\n`,
    grantsToml: allowAlways,
    secrets: { consult: "key\n" },
  });
  const { paths } = home;
  let call = 0;
  {
    await using brokerd = await startBrokerd(paths, { wrap: limited });
    let answered = 0;
    let answer = await brokerd.call("chat-a", ++call);
    for (; answer.status === "ok" && call < callsMax; answer = await brokerd.call("chat-a", ++call)) {
      answered++;
    }
    assert(answered > 0, JSON.stringify(answer));
    assert(answer.status === "denied", `after ${answered} calls: ${JSON.stringify(answer)}`);
    assertEquals(answer.code, "AuditUnavailable");
    // The call that met the full disk may have left, if its intent was the last that fitted; nothing after it.
    const arrived = endpoint.requests.length;
    assert(arrived === answered || arrived === answered + 1);
    for (let more = 0; more < deniedWanted; more++) {
      const later = await brokerd.call(more % 2 === 0 ? "chat-a" : "chat-new", ++call);
      assert(later.status === "denied");
      assertEquals(later.code, "AuditUnavailable");
    }
    const label = await requestJson(paths.brokerSocket, {
      method: "POST",
      path: "/v1/label",
      body: { session: "chat-other", label: { class: "private", untrusted: false } },
    });
    assertEquals((label.body as { code: string }).code, "AuditUnavailable");
    const hello = await requestJson(paths.ownerSocket, { method: "GET", path: "/v1/hello" });
    assert(/cannot be written/.test((hello.body as { denyAll: string }).denyAll));
    assertEquals([endpoint.requests.length, isRunning(brokerd.pid)], [arrived, true]);
    const { exit } = await verifyAudit(paths.audit);
    assert([0, 12].includes(exit), `exit ${exit}`);
  }
  // Whatever arrived stands in the log as an intent: nothing left unrecorded.
  const before = endpoint.requests.map(({ body }) => new TextDecoder().decode(body));
  await using brokerd = await startBrokerd(paths);
  assertEquals((await brokerd.call("chat-b", 1)).status, "ok");
  await brokerd.stop();
  const records = await readRecords(paths.audit);
  const intents = records.flatMap((record) => record.kind === "intent" ? [record.body] : []);
  assertEquals(intents.slice(0, -1).sort(), before.sort());
  assertEquals(new Set(decisions(records).map(({ intent }) => intent)).size, intents.length);
  assertEquals((await verifyAudit(paths.audit)).exit, 0);
});

/** Writes that go to `device` once `armed`, so that the error is the kernel's own. */
function failing(device: string, arming: { armed: boolean }) {
  return (path: string, options: Deno.OpenOptions): SegmentFile => {
    const file = Deno.openSync(path, options);
    const broken = Deno.openSync(device, { write: true });
    return {
      writeSync: (bytes) => (arming.armed ? broken : file).writeSync(bytes),
      syncData: () => file.syncData(),
      close() {
        file.close();
        broken.close();
      },
    };
  };
}

for (
  const [what, device] of [["a full disk (ENOSPC)", "/dev/full"], ["an I/O fault (EIO)", "/proc/self/mem"]]
) {
  Deno.test(`${what} before the send sends nothing, after it releases nothing, and a new start serves`, async () => {
    const arming = { armed: false };
    await using rig = await brokerRig({ grants: allowPrivate, audit: { openFile: failing(device, arming) } });
    // In mid-consult: the intent is on the disk, the decision will not be.
    rig.endpoint.setBehaviour(() => {
      arming.armed = true;
      return { kind: "answer", content: "Four." };
    });
    const lost = await rig.call("chat-a", 1);
    assert(lost.status === "denied");
    assertEquals([lost.code, lost.text.includes("Four.")], ["AuditUnavailable", false]);
    assert(/os error/.test(rig.denyAll ?? ""), rig.denyAll);

    for (let call = 2; call < 12; call++) {
      const answer = await rig.call("chat-b", call);
      assert(answer.status === "denied");
      assertEquals(answer.code, "AuditUnavailable");
    }
    assertEquals(rig.endpoint.requests.length, 1);

    await rig.restart({ audit: { openFile: failing(device, { armed: false }) } });
    const state = await rig.callState("chat-a", 1);
    assertEquals(state.status === "error" && state.code, "consult-unknown");
    rig.endpoint.setBehaviour({ kind: "answer" });
    assertEquals((await rig.call("chat-b", 1)).status, "ok");

    // From the start on: the intent itself cannot be written.
    arming.armed = true;
    await rig.restart({ audit: { openFile: failing(device, arming) } });
    assert(rig.denyAll !== undefined);
    const refused = await rig.call("chat-c", 1);
    assert(refused.status === "denied");
    assertEquals([refused.code, rig.endpoint.requests.length], ["AuditUnavailable", 2]);
    await rig.stop();
    assertEquals((await verifyAudit(rig.paths.audit)).exit, 0);
  });
}
