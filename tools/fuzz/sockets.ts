// Fuzzes the three sockets of running roles: sound requests, requests of which the content is spoilt, and bytes that are spoilt as a whole.
// A sound framing is always answered, with JSON of the pinned shape; of spoilt bytes it is only asked that nothing is served that is no answer.

import { z } from "zod";
import type { HomePaths } from "../../core/home.ts";
import type { Findings } from "./findings.ts";
import { spoil } from "./random.ts";
import type { Random } from "./random.ts";
import { exchange, firstAnswer } from "./raw_client.ts";
import { encodeRequest, type Request, soundRequest, spoilContent } from "./requests.ts";

/** Longer than a turn, a waiting approval of this run and a busy machine take together. */
const answerMsMax = 20_000;
/** Spoilt bytes may ask for more than we send: our end of the connection says that nothing comes. */
const rawMsMax = 10_000;
const refusals = [400, 404, 405, 409, 413, 415, 503];
const refusalSchema = z.strictObject({
  status: z.literal("error"),
  code: z.string().regex(/^[a-z][a-z-]{0,40}$/),
  text: z.string().max(2_000),
});

export async function fuzzSockets(
  paths: HomePaths,
  { random, findings, over }: { random: Random; findings: Findings; over: () => boolean },
): Promise<void> {
  const socketPath = { broker: paths.brokerSocket, owner: paths.ownerSocket, loop: paths.loopSocket };
  while (!over()) {
    const sound = soundRequest(random);
    const kind = random.weighted([[3, "sound"], [5, "content"], [3, "bytes"]] as const);
    const request = kind === "content" ? spoilContent(sound, random) : sound;
    const bytes = kind === "bytes" ? spoil(encodeRequest(sound), random) : encodeRequest(request);
    findings.count(`${sound.socket}.sock ${kind}`);
    const began = performance.now();
    try {
      if (kind === "bytes") {
        const { text } = await exchange(socketPath[sound.socket], bytes, {
          timeoutMs: rawMsMax,
          halfClose: true,
        });
        judgeRaw(text, bytes, findings);
      } else {
        const { text, late } = await exchange(socketPath[sound.socket], bytes, {
          timeoutMs: answerMsMax,
          halfClose: false,
          until: request.stream === "left" ? isStream : undefined,
        });
        judge(request, { text, late, bytes, isSound: kind === "sound", began }, findings);
      }
    } catch (error) {
      findings.add(`${sound.socket}.sock could not be reached: ${error}`, bytes);
    }
  }
}

/** A spoilt path may lead to a row that streams nothing, whose answer is then read to its end. */
function isStream(text: string): boolean {
  const answer = firstAnswer(text);
  return answer !== undefined && answer.headers.includes("text/event-stream");
}

function judge(
  request: Request,
  { text, late, bytes, isSound, began }: {
    text: string;
    late: boolean;
    bytes: Uint8Array;
    isSound: boolean;
    began: number;
  },
  findings: Findings,
): void {
  if (late) return findings.addLate(`no whole answer within ${answerMsMax} ms`, bytes, began);
  const answer = firstAnswer(text);
  if (answer === undefined) {
    return findings.add(`no HTTP answer but ${JSON.stringify(text.slice(0, 80))}`, bytes);
  }
  const { status, headers, body } = answer;
  findings.count(`HTTP ${status}`);
  if (status === 200 && headers.includes("text/event-stream")) {
    // A turn's stream ends with its outcome; a log that is followed is left.
    if (request.stream !== "left" && request.path.endsWith("/turns") && !body.includes("event: done")) {
      findings.add("a turn's stream without its outcome", bytes);
    }
    return;
  }
  const value = parsed(body);
  if (value === undefined) {
    return findings.add(
      `HTTP ${status} whose body is no JSON: ${headers.slice(0, 120)} ${body.slice(0, 80)}`,
      bytes,
    );
  }
  if (status === 200) {
    if (request.answer.safeParse(value).success) return;
    // A spoilt path may lead to another row, whose answer has another shape.
    const { status: said, protocol } = value as { status?: unknown; protocol?: unknown };
    if (isSound || (typeof said !== "string" && protocol !== 1)) {
      findings.add(`an answer out of shape: ${body.slice(0, 200)}`, bytes);
    } else findings.count("answers of another row");
    return;
  }
  if (!refusals.includes(status) || !refusalSchema.safeParse(value).success) {
    findings.add(`HTTP ${status}: ${body.slice(0, 200)}`, bytes);
  }
}

function judgeRaw(text: string, bytes: Uint8Array, findings: Findings): void {
  if (text === "") return findings.count("closed without a word");
  const answer = firstAnswer(text);
  if (answer === undefined) {
    return findings.add(`bytes that are no HTTP: ${JSON.stringify(text.slice(0, 80))}`, bytes);
  }
  findings.count(`HTTP ${answer.status} to spoilt bytes`);
  if (answer.status >= 500 && answer.status !== 501 && answer.status !== 503 && answer.status !== 505) {
    findings.add(`HTTP ${answer.status} to spoilt bytes: ${answer.body.slice(0, 200)}`, bytes);
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
