// The three proofs of the milestone, each acted out through the CLI and then judged from records alone: what the audit log says, what
// reached the recorder, what the sessions' logs and the model's server counted. No number is written here that a run could not contradict.

import { describeError } from "../../core/errors.ts";
import { childSessionId, parseSessionId } from "../../core/ids.ts";
import { describeLabel } from "../../core/labels.ts";
import type { HomePaths } from "../../core/home.ts";
import type { TurnOutcome } from "../../core/protocol/loop.ts";
import { count } from "../bxctl/render.ts";
import type { ConsultEndpoint } from "../stubs/consult_endpoint.ts";
import type { ModelStub } from "../stubs/model.ts";
import type { Bx } from "./bx.ts";
import { keptPrefix, readAuditLog, readSession, sentBodies } from "./evidence.ts";
import { askAndNoteText } from "./practice_script.ts";
import type { Check, Story } from "./story.ts";

export type ProofId = "P1" | "P2" | "P3";

export interface Proof {
  readonly id: ProofId;
  readonly ok: boolean;
  /** One sentence of the verdict: what was shown, or what was not. */
  readonly text: string;
  /** What `--json` adds. */
  readonly facts: Readonly<Record<string, unknown>>;
}

export interface Stage {
  readonly bx: Bx;
  readonly paths: HomePaths;
  readonly model: ModelStub;
  readonly recorder: ConsultEndpoint;
  readonly story: Story;
  readonly slots: { readonly main: number; readonly background: number };
  readonly signal: AbortSignal;
}

/** Not only ASCII: byte for byte is said of bytes. */
const question = 'How long does a "sourdough" starter keep at 4 °C – a week, or two? 🍞';

/** A chat begins with its first message, so each can have a name that a reader follows. */
const sessions = {
  asking: parseSessionId("chat-asking"),
  tainted: parseSessionId("chat-tainted"),
  clean: parseSessionId("chat-clean"),
  parent: parseSessionId("chat-parent"),
};

const shownCharactersMax = 200;

export const titles: Readonly<Record<ProofId, string>> = {
  P1: "A tainted session is refused consult",
  P2: "The audited body is, byte for byte, what left this device",
  P3: "A subagent runs on the background slot, and its parent keeps its prompt cache",
};

export async function proveRefusal({ bx, paths, recorder, story }: Stage): Promise<Proof> {
  const checks = new Checks("P1", story);

  story.text(
    "One session asks the cloud. The answer is a stranger's text, and so is the note that the model keeps of it.",
  );
  const asked = await bx.send(sessions.asking, askAndNoteText(question));
  tellOutcome(story, asked);
  const note = (await Deno.readTextFile(paths.notes)).trimEnd().split("\n").at(-1) ?? "";
  story.detail("notes.md", note);
  checks.that(
    callOf(asked, "consult")?.status === "ok" && callOf(asked, "memory")?.status === "ok" &&
      note.includes("untrusted"),
    "the note carries the label of the session that kept it: untrusted",
  );

  story.text("Another session begins clean, recalls the note, and is tainted by it. Now it asks the cloud.");
  const { tainted, clean } = sessions;
  const recalled = await bx.send(tainted, "recall sourdough starter");
  tellOutcome(story, recalled);
  const recorderBefore = recorder.requests.length;
  const refused = await bx.send(tainted, `ask the cloud: ${question}`);
  tellOutcome(story, refused);
  const recorderAfter = recorder.requests.length;
  const audit = await readAuditLog(bx);
  const denial = audit.findLast((record) => record.kind === "decision" && record.session === tainted);
  const { code, cause } = denial?.kind === "decision" ? denial : {};
  if (denial?.kind === "decision" && denial.verdict === "deny") {
    story.detail(
      "audit",
      `seq ${denial.seq}: deny ${code} (${cause}), session (${describeLabel(denial.label)})`,
    );
    story.detail("unsent", denial.body ?? "");
  }
  checks.that(recalled.label.untrusted, `what it recalled made the session ${describeLabel(recalled.label)}`);
  checks.that(
    callOf(refused, "consult")?.code === "TaintTooHigh" && code === "TaintTooHigh" && cause === "untrusted",
    "the consult was denied TaintTooHigh, and the audit log names the cause: untrusted",
  );
  checks.that(
    recorderAfter === recorderBefore,
    `nothing reached the recorder: ${count(recorderBefore, "request")} before, ${recorderAfter} after`,
  );

  story.text("The nearest thing that is allowed: the same question, from a session that recalled nothing.");
  const allowed = await bx.send(clean, `ask the cloud: ${question}`);
  tellOutcome(story, allowed);
  checks.that(
    callOf(allowed, "consult")?.status === "ok" && recorder.requests.length === recorderAfter + 1,
    "the clean session was allowed, and its request is the recorder's next",
  );
  return checks.proof(
    `a session that recalled an untrusted note was denied (${code}, ${cause}); a clean one was allowed`,
    {
      tainted,
      clean,
      code,
      cause,
      label: refused.label,
      recorderBefore,
      recorderAfter,
    },
  );
}

export async function proveBody({ bx, recorder, story }: Stage): Promise<Proof> {
  const checks = new Checks("P2", story);
  const sent = sentBodies(await readAuditLog(bx), recorder.requests);
  for (const { session, body, auditSha256, wireSha256 } of sent) {
    story.detail("body", `${body} (from ${session})`);
    story.detail("audit", `sha256 ${auditSha256}`);
    story.detail("wire", `sha256 ${wireSha256 ?? "none: nothing arrived"}`);
  }
  checks.that(
    sent.length > 0 && sent.length === recorder.requests.length,
    `the audit log has ${count(sent.length, "intent")}, the recorder ${
      count(recorder.requests.length, "request")
    }`,
  );
  const equal = sent.filter((each) => each.equal).length;
  checks.that(
    equal === sent.length,
    `byte for byte equal: ${equal} of ${sent.length}; the decision holds the same body, and both records its hash`,
  );
  const shown = sent.find((each) => !each.equal) ?? sent[0];
  return checks.proof(
    `${equal} of ${sent.length} audited bodies equal the bytes that left (sha256 ${
      shown?.auditSha256.slice(0, 12)
    }…)`,
    {
      wireSha256: shown?.wireSha256,
      auditSha256: shown?.auditSha256,
      bodies: sent.length,
      equal,
    },
  );
}

export async function provePrefix({ bx, model, story, slots }: Stage): Promise<Proof> {
  const checks = new Checks("P3", story);
  story.text("A conversation with some length, then a task for a subagent.");
  const { parent } = sessions;
  tellOutcome(story, await bx.send(parent, "write 300 words"));
  const served = model.requests.length;
  const outcome = await bx.send(parent, "delegate: what time is it");
  tellOutcome(story, outcome);
  const call = callOf(outcome, "subagent");
  const child = call && childSessionId(parent, call.call);
  if (call?.status !== "ok" || child === undefined) throw new Error("the subagent did not complete");
  const [ofParent, ofChild] = await Promise.all([readSession(bx, parent), readSession(bx, child)]);
  const kept = keptPrefix(ofParent.requests, call.call);
  if (kept === undefined) throw new Error(`the log of ${parent} shows no request after the subagent's call`);

  const childSlots = ofChild.requests.map(({ slot }) => slot);
  const atServer = model.requests.slice(served);
  story.detail("child", `${child}: ${count(childSlots.length, "request")} on slot ${childSlots.join(", ")}`);
  story.detail("served", `in order, by slot: ${atServer.map(({ slot }) => slot).join(" ")}`);
  story.detail("before", `${kept.previousTotal} tokens in slot ${slots.main} when the parent called`);
  story.detail(
    "after",
    `cache_n ${kept.cacheN} in its next request; ${kept.computedN} tokens computed, ${kept.lostN} of them for the second time`,
  );
  checks.that(
    childSlots.length > 0 && childSlots.every((slot) => slot === slots.background) &&
      atServer.filter(({ slot }) => slot === slots.background).length === childSlots.length,
    `every request of the child ran on slot ${slots.background}, at the server, too`,
  );
  checks.that(
    ofParent.requests.every(({ slot }) => slot === slots.main),
    `every request of the parent ran on slot ${slots.main}`,
  );
  // The practice model writes a call as its template does, so nothing beyond the last sampled token may be missing.
  checks.that(
    kept.lostN === 0 && atServer.at(-1)?.cacheN === kept.cacheN,
    `the parent's next request found ${kept.cacheN} of ${kept.previousTotal} tokens; the law promises ${kept.lawN}, ` +
      `${kept.lostN} were lost`,
  );
  checks.that(model.collisions === 0, `${count(model.collisions, "request")} met a busy slot`);
  return checks.proof(
    `the child ran on slot ${
      childSlots[0]
    }; the parent's next request kept ${kept.cacheN} of ${kept.previousTotal} tokens`,
    {
      parent,
      child,
      mainSlot: slots.main,
      childSlots,
      ...kept,
      collisions: model.collisions,
    },
  );
}

/** A proof that could not be acted out is one that failed. */
export async function judge(
  id: ProofId,
  stage: Stage,
  act: (stage: Stage) => Promise<Proof>,
): Promise<Proof> {
  stage.story.heading(`${id}  ${titles[id]}`);
  try {
    return await act(stage);
  } catch (error) {
    stage.signal.throwIfAborted();
    return notShown(id, describeError(error));
  }
}

export function notShown(id: ProofId, reason: string): Proof {
  return { id, ok: false, text: reason, facts: { reason } };
}

/** The checks of one proof, told as they are made. */
class Checks {
  readonly #made: Check[] = [];

  constructor(readonly id: ProofId, readonly story: Story) {}

  that(ok: boolean, text: string): void {
    this.#made.push({ ok, text });
    this.story.check({ ok, text });
  }

  proof(text: string, facts: Record<string, unknown>): Proof {
    const failed = this.#made.find(({ ok }) => !ok);
    const reason = failed && `not so: ${failed.text}`;
    return {
      id: this.id,
      ok: failed === undefined,
      text: reason ?? text,
      facts: reason === undefined ? facts : { ...facts, reason },
    };
  }
}

function callOf(outcome: TurnOutcome, tool: string): TurnOutcome["calls"][number] | undefined {
  return outcome.calls.findLast((call) => call.tool === tool);
}

function tellOutcome(story: Story, { session, calls, label, content }: TurnOutcome): void {
  for (const { tool, status, code } of calls) {
    story.detail(tool, code === undefined ? status : `${status} ${code}`);
  }
  story.detail(
    "answer",
    content === ""
      ? "none"
      : content.length > shownCharactersMax
      ? `${content.slice(0, shownCharactersMax)}…`
      : content,
  );
  story.detail("label", `${session} is now (${describeLabel(label)})`);
}
