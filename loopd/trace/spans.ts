// Spans of what loopd does: turn, inference, call, and what brokerd was asked for. Times, ids, numbers, labels and words of our own; never a
// text that a person, a model or a peer wrote, not even the name of a tool that does not exist. files.ts writes them.
//
// A call's and a turn's span ids follow from the log, so a child finds its parent's span without being handed it, and a turn that a restart
// cut has one span in all, from its first moment on.

import { createHash, randomBytes } from "node:crypto";
import type { Clock } from "../../core/clock.ts";
import { type CallId, parentSessionId, type SessionId, sessionKind } from "../../core/ids.ts";
import type { Label } from "../../core/labels.ts";
import type { ModelMessage } from "../inference/model.ts";
import { ModelFailure } from "../inference/model_failure.ts";
import { Cancelled, RoleStopping, type ToolResult, type Turn, TurnFailure } from "../turn_types.ts";
import type { Span, Tracer } from "./tracer.ts";

export interface TracerFacts {
  readonly clock: Clock;
  /** The turn that a session is in. */
  readonly turnOf: (session: SessionId) => Turn | undefined;
  /** Names that are ours and brokerd's; any other is the model's own text. */
  readonly isToolName: (name: string) => boolean;
  readonly record: (span: Span) => void;
}

export function spanTracer({ clock, turnOf, isToolName, record }: TracerFacts): Tracer {
  const toolName = (name: string) => isToolName(name) ? name : "other";

  function traceOf({ session, tree }: Turn): string {
    const root = tree.root === session.id ? session : turnOf(tree.root)?.session ?? session;
    return idOf(16, "trace", root.id, root.turn, root.turnStartedAt);
  }

  /** The span of the call that this turn's session was spawned by, where its parent still waits for it. */
  function spawningCall({ session, tree }: Turn): string | undefined {
    const parent = tree.root === session.id ? undefined : parentSessionId(session.id);
    const waiting = parent === undefined || parent === "malformed" ? undefined : turnOf(parent);
    return waiting && callSpan(waiting, Number(session.id.slice(session.id.lastIndexOf("-") + 1)));
  }

  /** Runs the work and records a span of it, whichever way it ends. The attributes are asked for then. */
  async function during<T>(
    span: Pick<Span, "traceId" | "spanId" | "parentSpanId" | "name" | "isClient">,
    work: () => Promise<T>,
    attributes: (result: T | undefined) => Span["attributes"] & { readonly status?: string },
  ): Promise<T> {
    const startMs = clock.now();
    const began = clock.monotonic();
    const end = (result: T | undefined, more: Span["attributes"], failed: boolean) => {
      record({
        ...span,
        startMs,
        endMs: startMs + (clock.monotonic() - began),
        failed,
        attributes: { ...attributes(result), ...more },
      });
    };
    let result: T;
    try {
      result = await work();
    } catch (error) {
      // What a stopping role leaves open goes on after the restart, and has its span then.
      if (!(error instanceof RoleStopping)) {
        end(undefined, { status: "error", reason: reasonOf(error) }, true);
      }
      throw error;
    }
    end(result, {}, (result as { status?: unknown } | undefined)?.status === "error");
    return result;
  }

  return {
    turnEnded(turn) {
      const { session, slot, priority } = turn;
      const status = session.lastEnd?.status ?? "failed";
      record({
        traceId: traceOf(turn),
        spanId: turnSpan(turn),
        parentSpanId: spawningCall(turn),
        name: "turn",
        isClient: false,
        startMs: Date.parse(session.turnStartedAt),
        endMs: clock.now(),
        failed: status === "failed",
        attributes: {
          session: session.id,
          kind: sessionKind(session.id),
          turn: session.turn,
          slot,
          priority,
          status,
          reason: session.lastEnd?.reason,
          iterations: session.turnIterations,
          crashes: session.turnCrashes,
          ...labelled(session.label),
        },
      });
    },

    inference(of, lease, work) {
      const { session } = of;
      const attributes = (message: ModelMessage | undefined): Span["attributes"] => ({
        session: session.id,
        purpose: of.purpose,
        slot: lease.slot,
        queued_ms: Math.round(lease.queuedMs),
        ...labelled(session.label),
        ...(message === undefined ? {} : {
          status: "ok",
          first_token_ms: Math.round(message.firstTokenMs),
          cache_n: message.timings.cacheN,
          prompt_n: message.timings.promptN,
          predicted_n: message.timings.predictedN,
          calls: message.calls.length,
        }),
      });
      const turn = of.purpose === "turn" ? of.turn : undefined;
      const span = {
        traceId: turn === undefined ? randomId(16) : traceOf(turn),
        spanId: randomId(8),
        ...(turn === undefined ? {} : { parentSpanId: turnSpan(turn) }),
        name: "inference" as const,
        isClient: true,
      };
      return during(span, work, attributes);
    },

    call(call, turn, work) {
      const span = {
        traceId: traceOf(turn),
        spanId: callSpan(turn, call.call),
        parentSpanId: turnSpan(turn),
        name: "call" as const,
        isClient: false,
      };
      return during(span, work, (result) => ({
        session: turn.session.id,
        call: call.call,
        tool: toolName(result?.tool ?? call.name),
        ...ended(result),
      }));
    },

    brokered(tool, { turn, call }, work) {
      const span = {
        traceId: traceOf(turn),
        spanId: randomId(8),
        parentSpanId: callSpan(turn, call),
        name: tool === "consult" || tool === "ask_memory" ? tool : "brokered" as const,
        isClient: true,
      } as const;
      return during(span, work, (result) => ({
        session: turn.session.id,
        call,
        tool: toolName(tool),
        ...ended(result),
      }));
    },
  };
}

function turnSpan({ session }: Turn): string {
  return idOf(8, "turn", session.id, session.turn, session.turnStartedAt);
}

function callSpan({ session }: Turn, call: CallId): string {
  return idOf(8, "call", session.id, session.turn, session.turnStartedAt, call);
}

function labelled(label: Label): Span["attributes"] {
  return { "label.class": label.class, "label.untrusted": label.untrusted };
}

function ended(result: ToolResult | undefined): Span["attributes"] {
  return result === undefined
    ? {}
    : { status: result.status, code: word(result.code), ...labelled(result.label) };
}

/** Codes and reasons are words of ours; what a failure says beyond its word may hold anything. */
function reasonOf(error: unknown): string {
  if (error instanceof ModelFailure || error instanceof TurnFailure) return error.reason;
  if (error instanceof Cancelled) return "cancelled";
  return "error";
}

function word(code: string | undefined): string | undefined {
  return code === undefined || /^[A-Za-z-]{1,40}$/.test(code) ? code : "other";
}

function idOf(bytes: 8 | 16, ...parts: readonly (string | number)[]): string {
  return createHash("sha256").update(parts.join(" ")).digest("hex").slice(0, bytes * 2);
}

function randomId(bytes: 8 | 16): string {
  return randomBytes(bytes).toString("hex");
}
