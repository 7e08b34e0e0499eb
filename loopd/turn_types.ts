// The contracts of the turn loop: what a turn is, what a tool is, and the ways in which a turn ends early. No code runs here but the
// constructors of those endings; turn.ts is the loop.

import type { z } from "zod";
import type { CallId, SessionId } from "../core/ids.ts";
import type { Label } from "../core/labels.ts";
import type { TurnEvent } from "../core/protocol/loop.ts";
import type { FailureReason } from "./session/record.ts";
import type { Session } from "./session/session.ts";
import type { Priority } from "./slots/gate.ts";

/** What every session of one live turn shares, from the root down. */
export interface TurnTree {
  readonly root: SessionId;
  /** Aborted with a Cancelled or a RoleStopping. */
  readonly signal: AbortSignal;
  /** Children spawned so far, over the whole tree (S14). */
  spawned: number;
}

/** One turn of one session. Holding it is the session's hold: nobody else starts a turn there meanwhile. */
export interface Turn {
  readonly session: Session;
  readonly tree: TurnTree;
  /** Messages with tool calls that are run in this turn; the message after the last of them must be the answer. */
  readonly iterationsMax: number;
  readonly slot: number;
  readonly priority: Priority;
  /** What it waits for, for `bx status`; undefined while it streams or runs a tool of its own. */
  waitsFor: "slot" | "child" | "broker" | undefined;
  /** What is streamed to whoever started it. */
  emit(event: TurnEvent): void;
}

/** The turn cannot go on. It is recorded as failed with this reason, and the session stays usable. */
export class TurnFailure extends Error {
  override readonly name = "TurnFailure";
  constructor(readonly reason: FailureReason, readonly detail: string) {
    super(`${reason}: ${detail}`);
  }
}

/** The owner cancelled the tree. */
export class Cancelled extends Error {
  override readonly name = "Cancelled";
  constructor() {
    super("by the owner");
  }
}

/** The role is going down. Nothing is recorded: the open turn is found and resumed at the next start. */
export class RoleStopping extends Error {
  override readonly name = "RoleStopping";
  constructor() {
    super("loopd is stopping");
  }
}

/** A tool as the model reads it: name, description, JSON Schema of its arguments. */
export interface ToolDefinition {
  readonly name: string;
  readonly description: string;
  readonly parameters: Readonly<Record<string, unknown>>;
}

export interface ToolResult {
  readonly status: "ok" | "denied" | "error";
  /** `denied: <code>` or `error: <code>` stands in `text` too. */
  readonly code?: string;
  readonly text: string;
  /** Joined into the session when the result is appended. */
  readonly label: Label;
  /** The tool that answered, where it is not the one the model named (`call_tool`). */
  readonly tool?: string;
}

export interface CallContext {
  readonly turn: Turn;
  readonly call: CallId;
}

/** A tool with its arguments parsed. `Arguments` is what its schema yields. */
export interface Tool<Arguments = unknown> {
  readonly definition: ToolDefinition;
  readonly argumentsSchema: z.ZodType<Arguments>;
  run(args: Arguments, context: CallContext): Promise<ToolResult>;
  /**
   * Ends a call that a restart interrupted, without doing twice what may have been done. Absent: the call only reads, and is run again.
   */
  resume?(args: Arguments, context: CallContext): Promise<ToolResult>;
}
