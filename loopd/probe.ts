// What `bx doctor` asks of the inference server, from the one process that may reach it. It sends no prompt of any session.

import type { ProbeAnswer } from "../core/protocol/loop.ts";
import type { Services } from "./services.ts";

type Finding = ProbeAnswer["findings"][number];

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
    const history = await server.historyFinding(signal);
    findings.push({ check: "history", ok: true, text: `${history.mode}: ${history.text}` });
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
    check: "brokerd",
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
