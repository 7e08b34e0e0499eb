// loopd.toml: its keys, defaults and bounds, mapped once to the configuration that loopd and the launcher share.
// Reads that one file; whether the inference server answers is not asked here.

import { Cron } from "croner";
import { z } from "zod";
import type { HomePaths } from "../home.ts";
import { isSessionId } from "../ids.ts";
import { type SensitivityClass, sensitivityClasses } from "../labels.ts";
import { sessionIdCharactersMax } from "../limits.ts";
import { isLoopback } from "./address.ts";
import { loadToml, type TomlResult } from "./toml_file.ts";
import { address, boolean, choice, fraction, integer, leaf, secretName, text } from "./wanted.ts";

export interface InferenceConfig {
  /** Scheme, host, port and base path, without a slash at the end: `/v1/chat/completions` is appended to it. */
  readonly url: string;
  /** The owner allows an inference server that is not this device. */
  readonly remote: boolean;
  readonly model: string;
  /** Name of a file in `secrets/`. */
  readonly secretName: string | undefined;
  readonly livenessMs: number;
  /** Bound of one model message, in model tokens. */
  readonly maxTokens: number;
  /** Sent only where the owner wrote it. */
  readonly temperature: number | undefined;
  /** How model messages go back to the server; `auto` asks the server's template. */
  readonly history: "auto" | "raw" | "structured";
}

export interface CronConfig {
  /** The session is `job-<name>`. */
  readonly name: string;
  /** Five fields, or six with seconds first. */
  readonly schedule: string;
  readonly task: string;
}

export interface LoopdConfig {
  /** Absent where neither the file nor the launcher names a server. */
  readonly inference: InferenceConfig | undefined;
  readonly slots: { readonly main: number; readonly background: number };
  readonly session: {
    readonly class: SensitivityClass;
    readonly toolIterations: number;
    readonly resumeHours: number;
  };
  readonly tools: { readonly resultChars: number };
  readonly compact: { readonly thresholdTokens: number; readonly summaryChars: number };
  readonly broker: { readonly timeoutMs: number };
  /** An IANA zone; absent where neither the file nor the launcher names one. */
  readonly clock: { readonly timeZone: string | undefined };
  readonly heartbeat: { readonly everyMinutes: number; readonly prompt: string } | undefined;
  readonly cron: readonly CronConfig[];
  /** Spans are written to `trace/`. */
  readonly trace: { readonly enabled: boolean };
}

export interface LoopdTomlOptions {
  /** Stands in where the file names no `[inference] url`; a url in the file wins. */
  readonly inferenceUrl?: string;
  /** Stands in where the file names no `[clock] time_zone`. */
  readonly timeZone?: string;
}

/** `[broker] timeout_ms`; longer than the longest consult. */
const brokerTimeoutMsMax = 7_200_000;
export const brokerTimeoutMsDefault = 200_000;
const livenessMsMax = 3_600_000;
const slotMax = 1_023;
const toolIterationsMax = 1_000;
const resumeHoursMax = 8_760;
const resultCharsMax = 1_000_000;
const thresholdTokensMax = 10_000_000;
const summaryCharsMax = 1_000_000;
const maxTokensMax = 1_000_000;
const temperatureMax = 2;
const everyMinutesMax = 525_600;
const promptCharactersMax = 16_000;
const cronEntriesMax = 64;
const modelCharactersMax = 256;
const jobPrefix = "job-";

const inferenceTable = z.strictObject({
  url: address(
    { elsewhere: "http-or-https", query: false },
    "an address such as http://127.0.0.1:8080, without a ? or # part",
  ).optional(),
  remote: boolean().default(false),
  model: text(modelCharactersMax).default("local"),
  secret: secretName().optional(),
  liveness_ms: integer(1, livenessMsMax, "milliseconds").default(120_000),
  max_tokens: integer(1, maxTokensMax, "model tokens").default(8_192),
  temperature: fraction(0, temperatureMax).optional(),
  history: choice(["auto", "raw", "structured"]).default("auto"),
}).refine(isHereOrRemote, {
  path: ["url"],
  when: () => true,
  error:
    "this host is not this device, and everything the model reads would go to it; write remote = true beside it " +
    "where that is meant",
});

const slotsTable = z.strictObject({
  main: integer(0, slotMax).default(0),
  background: integer(0, slotMax).default(2),
}).refine(({ main, background }) => main !== background, {
  path: ["background"],
  when: () => true,
  error:
    "is the same slot as slots.main; background work would push the live conversation out of its prompt cache",
});

const cronTable = z.strictObject({
  name: leaf<string>(isJobName, {
    wanted: `a name of a-z, 0-9 and -, 1 to ${sessionIdCharactersMax - jobPrefix.length} characters`,
    showText: true,
  }),
  schedule: leaf<string>(isSchedule, {
    wanted:
      'a schedule of five fields such as "0 7 * * *", or six with seconds first, that comes due at some time',
    showText: true,
  }),
  task: text(promptCharactersMax),
});

const loopdTable = z.strictObject({
  inference: inferenceTable.prefault({}),
  slots: slotsTable.prefault({}),
  session: z.strictObject({
    class: choice(sensitivityClasses).default("private"),
    tool_iterations: integer(1, toolIterationsMax).default(16),
    resume_hours: fraction(0, resumeHoursMax, { unit: "hours", aboveMin: true }).default(24),
  }).prefault({}),
  tools: z.strictObject({
    result_chars: integer(1, resultCharsMax, "characters").default(16_000),
  }).prefault({}),
  compact: z.strictObject({
    threshold_tokens: integer(1, thresholdTokensMax, "model tokens").default(24_000),
    summary_chars: integer(1, summaryCharsMax, "characters").default(4_000),
  }).prefault({}),
  broker: z.strictObject({
    timeout_ms: integer(1, brokerTimeoutMsMax, "milliseconds").default(brokerTimeoutMsDefault),
  }).prefault({}),
  clock: z.strictObject({
    time_zone: leaf<string>(isTimeZone, { wanted: 'a time zone such as "Europe/Berlin"', showText: true })
      .optional(),
  }).prefault({}),
  heartbeat: z.strictObject({
    every_minutes: fraction(0, everyMinutesMax, { unit: "minutes", aboveMin: true }),
    prompt: text(promptCharactersMax),
  }).optional(),
  cron: z.array(cronTable).max(cronEntriesMax, { error: `at most ${cronEntriesMax} cron entries` })
    .superRefine(refuseSameNames).default([]),
  trace: z.strictObject({ enabled: boolean().default(false) }).prefault({}),
});

/** The file mapped to our names, or everything that is wrong with it. */
export function loadLoopdConfig(paths: HomePaths, options: LoopdTomlOptions = {}): TomlResult<LoopdConfig> {
  return loadToml(paths.loopdToml, loopdTable.transform((table) => mapLoopd(table, options)));
}

function mapLoopd(
  table: z.output<typeof loopdTable>,
  { inferenceUrl, timeZone }: LoopdTomlOptions,
): LoopdConfig {
  const { inference, session, heartbeat } = table;
  const url = inference.url ?? inferenceUrl;
  return {
    inference: url === undefined ? undefined : {
      url: serverBase(url),
      remote: inference.remote,
      model: inference.model,
      secretName: inference.secret,
      livenessMs: inference.liveness_ms,
      maxTokens: inference.max_tokens,
      temperature: inference.temperature,
      history: inference.history,
    },
    slots: table.slots,
    session: {
      class: session.class,
      toolIterations: session.tool_iterations,
      resumeHours: session.resume_hours,
    },
    tools: { resultChars: table.tools.result_chars },
    compact: { thresholdTokens: table.compact.threshold_tokens, summaryChars: table.compact.summary_chars },
    broker: { timeoutMs: table.broker.timeout_ms },
    clock: { timeZone: table.clock.time_zone ?? timeZone },
    heartbeat: heartbeat && { everyMinutes: heartbeat.every_minutes, prompt: heartbeat.prompt },
    cron: table.cron,
    trace: table.trace,
  };
}

/** Without slashes at the end, and without the `/v1` that many people copy along: the request path begins with it. */
function serverBase(address: string): string {
  const url = new URL(address);
  return url.origin + url.pathname.replace(/\/+$/, "").replace(/\/v1$/, "");
}

/** Looks at what the leaves have not checked yet: it runs beside their faults, so that all come at once. */
function isHereOrRemote({ url, remote }: { url?: unknown; remote?: unknown }): boolean {
  if (remote === true || typeof url !== "string" || !URL.canParse(url)) return true;
  return isLoopback(new URL(url).hostname);
}

function isJobName(value: unknown): boolean {
  return typeof value === "string" && value !== "" && isSessionId(jobPrefix + value);
}

/** Parsed by the library that will run it; without a callback it starts no timer. */
function isSchedule(value: unknown): boolean {
  if (typeof value !== "string" || !/^\S+( +\S+){4,5}$/.test(value.trim())) return false;
  try {
    return new Cron(value, { paused: true, mode: "5-or-6-parts" }).nextRun() !== null;
  } catch {
    return false;
  }
}

// Temporal would take a whole date with a zone behind it, too.
const timeZoneName = /^(?:[A-Za-z][\w+/-]*|[+-]\d{2}(?::?\d{2})?)$/;

/** The zones that Temporal knows, by which the clock will write its lines. */
export function isTimeZone(value: unknown): boolean {
  if (typeof value !== "string" || !timeZoneName.test(value)) return false;
  try {
    Temporal.Instant.fromEpochMilliseconds(0).toZonedDateTimeISO(value);
    return true;
  } catch {
    return false;
  }
}

function refuseSameNames(entries: readonly CronConfig[], context: z.RefinementCtx): void {
  entries.forEach(({ name }, index) => {
    const first = entries.findIndex((entry) => entry.name === name);
    if (first === index || typeof name !== "string") return;
    context.addIssue({
      code: "custom",
      path: [index, "name"],
      message: `${JSON.stringify(name)} is the name of cron[${
        first + 1
      }] already; each job has its own session`,
    });
  });
}
