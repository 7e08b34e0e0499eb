// loopd's side of broker.sock: what brokerd offers, one brokered call and its answer, the ledger's knowledge of a session's family.
// It decides nothing: a denial is an ordinary result, and no answer is ever made up here. A call is posted once; after that it is only asked about.

import { type Clock, delay } from "../core/clock.ts";
import { UsageError } from "../core/errors.ts";
import { ancestorSessionIds, type CallId, type SessionId } from "../core/ids.ts";
import type { JsonObject } from "../core/json.ts";
import { type Label, publicTrusted } from "../core/labels.ts";
import {
  type BrokeredTool,
  type BrokerHello,
  brokerHelloSchema,
  callAnswerSchema,
  type CallRequest,
  type CallState,
  callStateSchema,
} from "../core/protocol/broker.ts";
import { STATUS_CODE } from "@std/http";
import { protocolVersion } from "../core/protocol/common.ts";
import { PeerUnreachable, requestJson } from "../core/wire/client.ts";
import { interrupted, toolError } from "./toolset/results.ts";
import { noTracer, type Tracer } from "./trace/tracer.ts";
import type { CallContext, ToolResult } from "./turn_types.ts";

export interface BrokerClientOptions {
  readonly socketPath: string;
  /** `[broker] timeout_ms`: how long a call may take while nobody's approval is waited for. */
  readonly timeoutMs: number;
  readonly clock: Clock;
  /** The label of a session of the same process, for telling the ledger of ancestors. */
  readonly labelOf: (session: SessionId) => Promise<Label>;
  readonly tracer?: Tracer;
}

/** How often a call is asked about whose answer did not come on its own connection. */
const askAgainMs = 500;
/** How long a broker that went away is waited for. */
const brokerBackMs = 15_000;
const helloTimeoutMs = 5_000;

export class BrokerClient {
  #options: BrokerClientOptions;
  #tracer: Tracer;
  #hello: BrokerHello | undefined;
  /** Families that the ledger of the running brokerd knows. */
  #announced = new Set<SessionId>();

  constructor(options: BrokerClientOptions) {
    this.#options = options;
    this.#tracer = options.tracer ?? noTracer;
  }

  /** Whether brokerd, as far as it was heard last, offers a tool of this name. */
  offers(name: string): boolean {
    return this.#hello?.tools.some((tool) => tool.name === name) ?? false;
  }

  /**
   * Meets brokerd. Throws PeerUnreachable while it is not there, and UsageError where our wait is shorter than its longest consult (C9):
   * such a loopd would give up on answers that were paid for and audited.
   */
  async meet(): Promise<BrokerHello> {
    const { httpStatus, body } = await this.#request("GET", "/v1/hello", undefined, {
      timeoutMs: helloTimeoutMs,
    });
    const parsed = brokerHelloSchema.safeParse(body);
    if (!parsed.success) {
      const text =
        `what answers (HTTP ${httpStatus}) is no brokerd that this loopd speaks to; wanted protocol ${protocolVersion}`;
      throw new PeerUnreachable(this.#options.socketPath, text, false);
    }
    const { consultTimeoutMs } = parsed.data;
    if (this.#options.timeoutMs < consultTimeoutMs) {
      throw new UsageError([{
        file: "loopd.toml",
        key: "broker.timeout_ms",
        text:
          `${this.#options.timeoutMs} is below brokerd.toml's consult.timeout_ms of ${consultTimeoutMs}; ` +
          `raise broker.timeout_ms to at least that, or lower consult.timeout_ms`,
        runbook: "broker-timeout",
      }]);
    }
    this.#hello = parsed.data;
    return parsed.data;
  }

  /** What brokerd offers; `undefined` while it cannot be reached, so that nobody knows. */
  async tools(): Promise<readonly BrokeredTool[] | undefined> {
    try {
      return (this.#hello ?? await this.meet()).tools;
    } catch (error) {
      if (error instanceof PeerUnreachable) return undefined;
      throw error;
    }
  }

  async reachable(): Promise<{ reachable: boolean; text?: string }> {
    try {
      const { denyAll } = await this.meet();
      return {
        reachable: true,
        ...(denyAll === undefined ? {} : { text: `every call is denied: ${denyAll}` }),
      };
    } catch (error) {
      return { reachable: false, text: error instanceof Error ? error.message : String(error) };
    }
  }

  /** Posts one call and waits for its answer, as long as that takes while an approval is pending. */
  callTool(tool: string, args: JsonObject, context: CallContext): Promise<ToolResult> {
    return this.#tracer.brokered(tool, context, () => this.#callTool(tool, args, context));
  }

  async #callTool(tool: string, args: JsonObject, context: CallContext): Promise<ToolResult> {
    const { turn, call } = context;
    const session = turn.session;
    const signal = turn.tree.signal;
    turn.waitsFor = "broker";
    let posting = false;
    try {
      if (this.#hello === undefined) await this.meet();
      await this.#announceFamily(session.id, session.label);
      posting = true;
      return toResult(
        await this.#post({ session: session.id, call, tool, arguments: args, label: session.label }, signal),
        tool,
      );
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof UsageError) {
        return toolError("broker-timeout", error.faults[0].text, "broker-timeout");
      }
      if (!(error instanceof PeerUnreachable)) throw error;
      this.#forgetBroker();
      // A brokerd that went away before the call itself was on its way has acted on nothing.
      return posting && error.sent
        ? toResult(await this.#askUntilDecided(session.id, call, signal), tool)
        : toolError(
          "broker-unavailable",
          "brokerd does not answer, so nothing was decided and nothing sent",
          "broker-unavailable",
        );
    } finally {
      turn.waitsFor = undefined;
    }
  }

  /** The result of a call that a restart interrupted: what brokerd decided, or `interrupted`; never a second post. */
  resumeCall(tool: string, context: CallContext): Promise<ToolResult> {
    return this.#tracer.brokered(tool, context, () => this.#resumeCall(tool, context));
  }

  async #resumeCall(tool: string, { turn, call }: CallContext): Promise<ToolResult> {
    turn.waitsFor = "broker";
    try {
      return toResult(await this.#askUntilDecided(turn.session.id, call, turn.tree.signal), tool);
    } finally {
      turn.waitsFor = undefined;
    }
  }

  // The timeout decides when to look, not when to leave: closing the connection would void an approval that the owner still thinks about.
  async #post(call: CallRequest, signal: AbortSignal): Promise<CallState> {
    const { clock, timeoutMs } = this.#options;
    const overdue = new AbortController();
    let cancel = () => {};
    const look = async () => {
      const state = await this.#ask(call.session, call.call, overdue.signal).catch(() => undefined);
      if (state?.status === "waiting") cancel = clock.schedule(timeoutMs, look);
      else overdue.abort(new CallOverdue());
    };
    cancel = clock.schedule(timeoutMs, look);
    try {
      const { httpStatus, body } = await this.#request("POST", "/v1/call", call, {
        signal: AbortSignal.any([signal, overdue.signal]),
      });
      const parsed = callAnswerSchema.safeParse(body);
      return parsed.success ? parsed.data : {
        status: "error",
        code: "broker-answer",
        text: `brokerd's answer (HTTP ${httpStatus}) is not one that this loopd knows`,
      };
    } catch (error) {
      if (!(error instanceof CallOverdue)) throw error;
      return {
        status: "error",
        code: "broker-timeout",
        text: `brokerd did not answer within ${timeoutMs} ms`,
      };
    } finally {
      cancel();
      overdue.abort();
    }
  }

  async #askUntilDecided(session: SessionId, call: CallId, signal: AbortSignal): Promise<CallState> {
    const { clock } = this.#options;
    const giveUpAt = clock.monotonic() + brokerBackMs;
    for (;;) {
      const state = await this.#ask(session, call, signal);
      if (state !== undefined && state.status !== "waiting" && state.status !== "running") return state;
      if (state === undefined && clock.monotonic() >= giveUpAt) return { status: "unknown" };
      await delay(clock, askAgainMs, signal);
    }
  }

  async #ask(session: SessionId, call: CallId, signal: AbortSignal): Promise<CallState | undefined> {
    try {
      const { body } = await this.#request("GET", `/v1/calls/${session}/${call}`, undefined, { signal });
      const parsed = callStateSchema.safeParse(body);
      return parsed.success ? parsed.data : { status: "unknown" };
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof PeerUnreachable) return undefined;
      throw error;
    }
  }

  // The ledger learns of a family from the root down before a child's first call: a `sub-` id whose parent it does not know is refused.
  async #announceFamily(session: SessionId, label: Label): Promise<void> {
    if (this.#announced.has(session)) return;
    for (const ancestor of ancestorSessionIds(session).toReversed()) {
      if (!this.#announced.has(ancestor)) {
        await this.#announce(ancestor, await this.#options.labelOf(ancestor));
      }
    }
    await this.#announce(session, label);
  }

  async #announce(session: SessionId, label: Label): Promise<void> {
    const { httpStatus } = await this.#request("POST", "/v1/label", { session, label }, {
      timeoutMs: helloTimeoutMs,
    });
    if (httpStatus === STATUS_CODE.OK) this.#announced.add(session);
  }

  /** The session was retired: its next call announces its family anew. */
  forgetSession(session: SessionId): void {
    this.#announced.delete(session);
  }

  // A brokerd that comes back rebuilt its ledger from the log, but it may be another version with other tools.
  #forgetBroker(): void {
    this.#hello = undefined;
    this.#announced.clear();
  }

  #request(
    method: "GET" | "POST",
    path: string,
    body: unknown,
    options: { signal?: AbortSignal; timeoutMs?: number },
  ): Promise<{ httpStatus: number; body: unknown }> {
    return requestJson(this.#options.socketPath, { method, path, body, ...options });
  }
}

/** The call took longer than `[broker] timeout_ms`, and no approval is pending for it. */
class CallOverdue extends Error {
  override readonly name = "CallOverdue";
}

// Whatever brokerd's text says, the model reads the pinned first words, so that a denial never looks like an answer.
function toResult(answer: CallState, tool: string): ToolResult {
  switch (answer.status) {
    case "ok":
      return { status: "ok", text: answer.text, label: answer.label };
    case "denied":
      return {
        status: "denied",
        code: answer.code,
        text: withPrefix(`denied: ${answer.code}`, answer.text),
        label: publicTrusted,
      };
    case "error":
      return {
        status: "error",
        code: answer.code,
        text: withPrefix(`error: ${answer.code}`, answer.text),
        label: publicTrusted,
      };
    case "waiting":
    case "running":
    case "unknown":
      return interrupted(tool);
  }
}

function withPrefix(prefix: string, text: string): string {
  return text.startsWith(prefix) ? text : `${prefix}: ${text}`;
}
