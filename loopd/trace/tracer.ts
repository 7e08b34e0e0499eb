// What loopd tells a trace of its work: the span, the tracer, and the tracer that does nothing. spans.ts makes the spans, and is loaded
// only where the owner asks for them.

import type { ModelMessage } from "../inference/model.ts";
import type { ModelCall } from "../session/record.ts";
import type { Session } from "../session/session.ts";
import type { Lease } from "../slots/gate.ts";
import type { CallContext, ToolResult, Turn } from "../turn_types.ts";

/** One finished span, as files.ts writes it. */
export interface Span {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: "turn" | "inference" | "call" | "consult" | "ask_memory" | "brokered";
  /** It waits for another process. */
  readonly isClient: boolean;
  readonly startMs: number;
  readonly endMs: number;
  readonly failed: boolean;
  readonly attributes: Readonly<Record<string, string | number | boolean | undefined>>;
}

/** A lease's part that a span needs. */
export type TracedLease = Pick<Lease, "slot" | "queuedMs">;

/** Where the request of an inference span comes from. */
export type TracedRequest =
  | { readonly purpose: "turn"; readonly session: Session; readonly turn: Turn }
  | { readonly purpose: "compaction" | "tool-summary"; readonly session: Session };

/** Each method runs the work as it is, and adds nothing to its way but a note at its end. */
export interface Tracer {
  turnEnded(turn: Turn): void;
  inference(
    of: TracedRequest,
    lease: TracedLease,
    work: () => Promise<ModelMessage>,
  ): Promise<ModelMessage>;
  call(call: ModelCall, turn: Turn, work: () => Promise<ToolResult>): Promise<ToolResult>;
  /** What brokerd was asked for, inside a call. */
  brokered(tool: string, context: CallContext, work: () => Promise<ToolResult>): Promise<ToolResult>;
}

/** What does nothing and costs nothing: no trace was asked for. */
export const noTracer: Tracer = {
  turnEnded: () => {},
  inference: (_of, _lease, work) => work(),
  call: (_call, _turn, work) => work(),
  brokered: (_tool, _context, work) => work(),
};
