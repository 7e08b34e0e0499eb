// What would be decided about a call, for the owner: the verdict, the grant, what the nearest one lacks, and the exact body.
// Sends nothing, records nothing, raises nothing.

import { sha256 } from "../core/audit/chain.ts";
import { describeLabel, joinLabels } from "../core/labels.ts";
import type { CheckAnswer, CheckRequest } from "../core/protocol/owner.ts";
import { ProtocolError } from "../core/errors.ts";
import { STATUS_CODE } from "@std/http";
import type { Broker } from "./broker.ts";

export function checkCall({ toolset, fold, calls, log }: Broker, request: CheckRequest): CheckAnswer {
  const tool = toolset.get(request.tool);
  if (tool === undefined) {
    throw new ProtocolError(
      "unknown-tool",
      STATUS_CODE.BadRequest,
      `there is no brokered tool ${JSON.stringify(request.tool)}; there are ${
        [...toolset.keys()].join(", ")
      }`,
    );
  }
  const { session } = request;
  const known = session === undefined ? undefined : fold.label(session);
  const label = known === undefined ? request.label : joinLabels(known, request.label);
  const base = { status: "ok", label } as const;
  const parsed = request.arguments === undefined ? undefined : tool.parse(request.arguments);
  if (parsed !== undefined && "invalid" in parsed) {
    return { ...base, verdict: "deny", code: "invalid-arguments", text: parsed.invalid };
  }
  const body = parsed === undefined ? undefined : tool.endpoint?.body(parsed.question);
  const exact = body === undefined ? {} : { body, bodySha256: sha256(body) };
  if (log.failure !== undefined) {
    return { ...base, verdict: "deny", code: "AuditUnavailable", ...exact, text: log.failure };
  }

  const verdict = calls.verdict(tool, { session, label });
  if (verdict.verdict === "deny") {
    const { code, cause, grant, lacks } = verdict;
    return {
      ...base,
      verdict: "deny",
      code,
      ...(cause === undefined ? {} : { cause }),
      ...(grant === undefined ? {} : { grant: grant.index }),
      lacks,
      ...exact,
      text: grant === undefined ? `lacks ${lacks}` : `grant ${grant.index} comes nearest and lacks ${lacks}`,
    };
  }
  const { grant } = verdict;
  const only = session === undefined && !grant.sessions.includes("*")
    ? `, for root sessions that match ${grant.sessions.join(" or ")}`
    : "";
  const how = verdict.verdict === "allow" ? "admits it" : "admits it once you approve it";
  return {
    ...base,
    verdict: verdict.verdict,
    grant: grant.index,
    ...exact,
    text: `grant ${grant.index} ${how}${only}; the session is ${describeLabel(label)}`,
  };
}
