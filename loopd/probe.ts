// What `bx doctor` asks of the inference server, from the one process that may reach it: what the server says of itself, then what it does
// with requests that are made up for it. It sends no prompt of any session.

import type { ProbeFinding as Finding } from "../core/protocol/common.ts";
import { parseSessionId } from "../core/ids.ts";
import { tryServer } from "./inference/trial.ts";
import type { Services } from "./services.ts";
import { withSlot } from "./slots/lease.ts";
import { SlotQueueFull, SlotSilent } from "./slots/gate.ts";

/** Who holds the slot meanwhile, for the owner's eyes. */
const holder = parseSessionId("doctor");

export async function probe(services: Services, signal: AbortSignal): Promise<Finding[]> {
  const { server, config, broker } = services;
  const findings: Finding[] = [];
  const state = await server?.look(signal);
  if (server === undefined || state === undefined) {
    findings.push({
      check: "inference server",
      ok: false,
      text: "no [inference] url is configured",
      advice: 'write url = "http://127.0.0.1:8080" under [inference] in loopd.toml',
    });
  } else if (state.kind === "ready") {
    findings.push({ check: "inference server", ok: true, text: `answers at ${server.config.url}` });
    findings.push(slotsFinding(state.totalSlots, config.slots));
    findings.push(await slotViewFinding(services));
    findings.push(contextFinding(state.contextTokens, state.totalSlots, services));
    const history = await server.historyFinding(signal);
    findings.push({
      check: "history",
      ok: true,
      text: `${history.mode}: ${history.text}`,
      ...(history.mode === "raw"
        ? {}
        : { advice: "about as many tokens as the last message has are computed again by each request" }),
    });
    findings.push(...await trials(services, state.totalSlots, signal));
  } else {
    findings.push({
      check: "inference server",
      ok: false,
      text: state.kind === "loading" ? `${server.config.url} is loading its model` : state.text,
      advice: state.kind === "loading"
        ? "wait for it"
        : "start it with -np 3 -c 98304 --jinja --cache-ram 0 -b 512 -ub 512, or correct [inference] url",
    });
  }
  const brokerState = await broker.reachable();
  findings.push({
    check: "broker.sock",
    ok: brokerState.reachable && brokerState.text === undefined,
    text: brokerState.text ?? "answers, and its timeouts fit",
  });
  return findings;
}

function slotsFinding(totalSlots: number | undefined, slots: { main: number; background: number }): Finding {
  const used = `slot ${slots.main} for live sessions, slot ${slots.background} for background work`;
  return totalSlots === undefined
    ? {
      check: "slots",
      ok: false,
      text: `the server does not say how many slots it has; ${used}`,
      advice: "make sure that it has these slots: llama.cpp's server takes a slot it does not have modulo",
    }
    : { check: "slots", ok: true, text: `${totalSlots} slots; ${used}` };
}

// A context that is full before a compaction is due ends the turn instead.
function contextFinding(
  contextTokens: number | undefined,
  totalSlots: number | undefined,
  { config }: Services,
): Finding {
  const check = "context";
  if (contextTokens === undefined) {
    return { check, ok: true, text: "the server does not say how many tokens a slot holds" };
  }
  const { thresholdTokens } = config.compact;
  const needed = thresholdTokens + (config.inference?.maxTokens ?? 0);
  const text = `${contextTokens} tokens a slot; a conversation is compacted at ${thresholdTokens}`;
  if (contextTokens >= needed) return { check, ok: true, text };
  return {
    check,
    ok: false,
    text,
    advice: `start the server with -c ${needed * (totalSlots ?? 3)} or more (${needed} for each slot: the ` +
      `threshold and [inference] max_tokens), or lower [compact] threshold_tokens`,
  };
}

async function trials(
  services: Services,
  totalSlots: number | undefined,
  signal: AbortSignal,
): Promise<Finding[]> {
  const { server, gate, clock, config: { slots } } = services;
  if (server === undefined) return [];
  const spareSlot = Array.from({ length: totalSlots ?? 0 }, (_, slot) => slot)
    .find((slot) => slot !== slots.main && slot !== slots.background);
  try {
    return await withSlot(
      gate,
      slots.background,
      { session: holder, priority: "tool-summary", signal },
      (lease) =>
        tryServer(server, { clock, slot: lease.slot, spareSlot, signal, onLife: () => lease.touch() }),
    );
  } catch (error) {
    if (!signal.aborted && !(error instanceof SlotSilent || error instanceof SlotQueueFull)) throw error;
    return [{
      check: "trial requests",
      ok: false,
      text: `were not through in time: slot ${slots.background} is at other work, or the model is slow`,
      advice: "bx status shows who holds the slot; ask again when it is idle",
    }];
  }
}

async function slotViewFinding({ server, config }: Services): Promise<Finding> {
  const processing = await server?.isProcessing(config.slots.background).catch(() => undefined);
  return processing === undefined
    ? {
      check: "slot state",
      ok: false,
      text: "the server does not show whether a slot is idle, so a cancelled request is waited for blindly",
      advice: "start llama.cpp's server with --slots",
    }
    : { check: "slot state", ok: true, text: "the server shows which slots are idle" };
}
