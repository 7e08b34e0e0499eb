// D2: against a private recorder on this device, a clean session's payload in the audit log equals the captured request, and a session that
// first recalled an untrusted note is refused. The note comes about as such notes do: a session keeps it after its consult was answered.

import { describeLabel } from "../../core/labels.ts";
import { readAuditLog, readAuditVerdict, sentBodies } from "../demo/evidence.ts";
import { askForCall, type Report, type Surroundings } from "./check.ts";
import { throughCallTool } from "./request_text.ts";

const question = "Which planet of the sun is the largest? Answer with its name – no more.";
const note = "Device check: the recorder on this device answers every question.";
const search = "device check recorder";

/** What the recorder says to all questions. */
export const recorderAnswer = "Jupiter, says the recorder of the device check.";

export async function checkConsult(around: Surroundings): Promise<Report> {
  const { bx, recorder } = around;
  const consult = throughCallTool("consult", { question });
  const clean = await askForCall(around, { tool: "consult", wanted: consult, status: "ok" });
  await askForCall(around, {
    tool: "memory",
    wanted: { name: "memory", arguments: { action: "add", target: "notes", text: note } },
    session: clean.session,
    status: "ok",
  });
  const recalled = await askForCall(around, {
    tool: "recall",
    wanted: { name: "recall", arguments: { query: search } },
    status: "ok",
  });
  const { session } = recalled;
  const capturedBefore = recorder.requests.length;
  const refused = await askForCall(around, { tool: "consult", wanted: consult, session, status: "denied" });
  const captured = recorder.requests.length;

  const audit = await readAuditLog(bx);
  const sent = sentBodies(audit, recorder.requests);
  const ofClean = sent.find((each) => each.session === clean.session);
  const denial = audit.findLast((record) => record.kind === "decision" && record.session === session);
  const { code, cause } = denial?.kind === "decision" ? denial : {};
  const verdict = await readAuditVerdict(bx);
  const unequal = sent.filter(({ equal }) => !equal).length;

  const faults = [
    ofClean !== undefined && unequal === 0 && sent.length === captured
      ? undefined
      : `${unequal} of ${sent.length} audited bodies differ from the ${captured} requests that were captured`,
    recalled.outcome.label.untrusted ? undefined : "what was recalled did not make the session untrusted",
    code === "TaintTooHigh" && cause === "untrusted" && refused.call.code === code
      ? undefined
      : `the tainted session's consult was decided ${code ?? "otherwise"} (${
        cause ?? "no cause"
      }), wanted TaintTooHigh (untrusted)`,
    captured === capturedBefore ? undefined : "a request of the tainted session reached the recorder",
    verdict.ok ? undefined : verdict.text,
  ].filter((fault) => fault !== undefined);

  return {
    id: "D2",
    ok: faults.length === 0,
    text: faults.length > 0
      ? faults.join("; ")
      : "the clean session's audited body equals the captured request; the tainted session was refused",
    lines: [
      ["clean", `${clean.session} asked: ${ofClean?.body ?? "nothing recorded"}`],
      ["wire", `sha256 ${ofClean?.wireSha256 ?? "none"}`],
      ["audit", `sha256 ${ofClean?.auditSha256 ?? "none"}; ${verdict.text}`],
      [
        "tainted",
        `${session} recalled an untrusted note and became (${
          describeLabel(recalled.outcome.label)
        }): consult denied ` +
        `${code} (${cause}); ${captured - capturedBefore} requests reached the recorder`,
      ],
    ],
    facts: {
      clean: clean.session,
      wireSha256: ofClean?.wireSha256,
      auditSha256: ofClean?.auditSha256,
      bodies: sent.length,
      tainted: session,
      label: recalled.outcome.label,
      code,
      cause,
      captured,
    },
  };
}
