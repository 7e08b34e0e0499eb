// Fuzzes the reader of session logs, through the role that owns it: a log that real turns wrote is spoilt, laid down as another session's,
// and asked for over loop.sock, to read and to go on. The role answers in a pinned shape and lives.

import { join } from "node:path";
import type { HomePaths } from "../../core/home.ts";
import { requestEvents, requestJson } from "../../core/wire/client.ts";
import type { Findings } from "./findings.ts";
import { type Random, spoil } from "./random.ts";
import { exchange, firstAnswer } from "./raw_client.ts";

const answerMsMax = 20_000;

/** A session of some turns, as loopd writes it. */
export async function writeSession(paths: HomePaths): Promise<Uint8Array> {
  const { body } = await requestJson(paths.loopSocket, { method: "POST", path: "/v1/sessions", body: {} });
  const { session } = body as { session: string };
  for (const text of ["remember tea", "what time is it", "delegate: what time is it"]) {
    const path = `/v1/sessions/${session}/turns`;
    for await (const _ of requestEvents(paths.loopSocket, { method: "POST", path, body: { text } }));
  }
  return await Deno.readFile(join(paths.sessions, session, "log.jsonl"));
}

export async function fuzzSessionReader(
  paths: HomePaths,
  { random, findings, over, sound }: {
    random: Random;
    findings: Findings;
    over: () => boolean;
    sound: Uint8Array;
  },
): Promise<void> {
  for (let number = 1; !over(); number++) {
    const id = `chat-spoilt-${number}`;
    const directory = join(paths.sessions, id);
    // Its own records carry the id of the session they were of; that is one more thing that is wrong.
    const named = new TextEncoder().encode(
      new TextDecoder().decode(sound).replaceAll(/"session":"chat-[a-z0-9]+"/g, `"session":"${id}"`),
    );
    const bytes = random.chance(20) ? named : spoil(random.chance(3) ? sound : named, random);
    await Deno.mkdir(directory, { mode: 0o700 });
    await Deno.writeFile(join(directory, "log.jsonl"), bytes, { mode: 0o600 });
    findings.count("session logs");
    for (const order of random.chance(2) ? ["read", "turn", "read"] : ["turn", "read"]) {
      await ask(paths, id, order, bytes, findings);
    }
    await ask(paths, id, "forget", bytes, findings);
    await Deno.remove(directory, { recursive: true }).catch(() => {});
  }
}

async function ask(
  paths: HomePaths,
  id: string,
  order: string,
  bytes: Uint8Array,
  findings: Findings,
): Promise<void> {
  const [path, body] = order === "read"
    ? [`/v1/sessions/${id}/log`, undefined]
    : order === "turn"
    ? [`/v1/sessions/${id}/turns`, '{"text":"hello there"}']
    : [`/v1/sessions/${id}/forget`, "{}"];
  const content = body ?? "";
  const request = new TextEncoder().encode(
    `${body === undefined ? "GET" : "POST"} ${path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n` +
      `content-length: ${content.length}\r\n\r\n${content}`,
  );
  const began = performance.now();
  try {
    const { text, late } = await exchange(paths.loopSocket, request, {
      timeoutMs: answerMsMax,
      halfClose: false,
    });
    const answer = firstAnswer(text);
    if (late) {
      return findings.addLate(`${order} of a spoilt session was not answered in time`, tail(bytes), began);
    }
    if (answer === undefined) {
      return findings.add(`${order} of a spoilt session was not answered`, tail(bytes));
    }
    findings.count(`session ${order}: HTTP ${answer.status}`);
    if (answer.status >= 500) {
      findings.add(`${order} of a spoilt session: HTTP ${answer.status}`, tail(bytes));
    } else if (order === "turn" && answer.status === 200 && !text.includes("event: done")) {
      findings.add("a turn of a spoilt session ended without its outcome", tail(bytes));
    }
  } catch (error) {
    findings.add(`${order} of a spoilt session: loop.sock could not be reached: ${error}`, tail(bytes));
  }
}

function tail(bytes: Uint8Array): Uint8Array {
  return bytes.subarray(Math.max(0, bytes.length - 500));
}
