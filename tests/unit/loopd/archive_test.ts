// retire and forget: an id begins anew, or never again; children go with their parent.

import { assert, assertEquals, assertRejects } from "@std/assert";
import { PeerRefused, requestJson } from "../../../core/wire/client.ts";
import { callsTool, type LoopdRig, says, startLoopdRig } from "../../support/loopd_rig.ts";

const post = (rig: LoopdRig, path: string) =>
  requestJson(rig.paths.loopSocket, { method: "POST", path: `/v1/sessions/${path}`, body: {} });

async function rigWithChild(): Promise<LoopdRig> {
  const rig = await startLoopdRig({
    script: ({ slot, messages }) => {
      if (slot === 2) return says(`child heard ${messages.at(-1)?.content}`);
      return messages.at(-1)?.role === "user"
        ? callsTool("subagent", { task: `task of ${messages.length}` })
        : says("done");
    },
  });
  await rig.send("chat-a", "first");
  return rig;
}

const folders = (rig: LoopdRig) => [...Deno.readDirSync(rig.paths.sessions)].map(({ name }) => name).sort();

Deno.test("B13 a retired session is set aside with its children, and its id begins anew without their answers", async () => {
  await using rig = await rigWithChild();
  assertEquals((await post(rig, "chat-a/retire")).httpStatus, 200);
  assertEquals(folders(rig).map((name) => name.replace(/\d+$/, "T")), [
    "chat-a.retired-T",
    "sub-chat-a-1.retired-T",
  ]);
  const again = await rig.send("chat-a", "second");
  assertEquals(again.status, "completed");
  assert((await rig.log("sub-chat-a-1")).some((record) => record.kind === "end"));
  assertEquals((await post(rig, "chat-nobody/retire")).httpStatus, 404);
});

Deno.test("B13 a forgotten session's text is gone with its children's, and its id is refused from then on", async () => {
  await using rig = await rigWithChild();
  assertEquals((await post(rig, "chat-a/forget")).httpStatus, 200);
  assertEquals(folders(rig), ["chat-a.forgotten", "sub-chat-a-1.forgotten"]);
  await assertRejects(() => rig.send("chat-a", "again"), PeerRefused, "forgotten");
  assertEquals((await rig.send("chat-b", "another")).status, "completed");
});

Deno.test("B13 retire, forget, messages and looks at one id at once are each answered, and loopd goes on", async () => {
  await using rig = await rigWithChild();
  for (let time = 0; time < 5; time++) {
    const look = () => requestJson(rig.paths.loopSocket, { method: "GET", path: "/v1/sessions/chat-a" });
    await Promise.all([
      ...["chat-a/retire", "chat-a/retire"].map((path) => post(rig, path)),
      look(),
      ...["one", "two"].map((text) => rig.send("chat-a", text)),
      look(),
    ].map((asked) =>
      asked.catch((error) => {
        if (!(error instanceof PeerRefused)) throw error;
        assert(error.httpStatus === 404 || error.httpStatus === 409, error.message);
      })
    ));
  }
  assertEquals((await rig.send("chat-b", "another")).status, "completed");
  await Promise.all([post(rig, "chat-b/forget"), post(rig, "chat-b/forget").catch(() => {})]);
  assertEquals((await rig.send("chat-c", "another")).status, "completed");
});
