// brokerd.toml: its keys, defaults and bounds, mapped once to the configuration that brokerd and the launcher share.
// An absent file configures nothing, and then every consult is denied. Names the secret; never reads it.

import { z } from "zod";
import type { HomePaths } from "../home.ts";
import { consultReplyBytesDefault } from "../limits.ts";
import { loadToml, type TomlResult } from "./toml_file.ts";
import { address, fraction, integer, secretName, text } from "./wanted.ts";

export interface ConsultConfig {
  /** As the owner wrote it. */
  readonly url: string;
  readonly model: string;
  readonly temperature: number;
  readonly timeoutMs: number;
  /** Name of a file in `secrets/`. */
  readonly secretName: string;
  /** Bound of a reply, in decoded bytes. */
  readonly replyBytesMax: number;
}

export interface HonchoConfig {
  readonly url: string;
  readonly secretName: string | undefined;
  readonly timeoutMs: number;
}

export interface BrokerdConfig {
  readonly consult: ConsultConfig | undefined;
  readonly approvals: { readonly expireMinutes: number };
  readonly honcho: HonchoConfig | undefined;
}

/** C3. */
export const consultTemperatureMax = 0.6;
/** C9. */
export const consultTimeoutMsDefault = 180_000;
const timeoutMsMax = 3_600_000;
const replyBytesMax = 64 * 1_048_576;
const expireMinutesMax = 43_200;
const modelCharactersMax = 256;

const addressWanted =
  "an https address, or an http one of this device such as http://127.0.0.1:9000/v1/chat/completions";

const brokerdTable = z.strictObject({
  consult: z.strictObject({
    url: address({ elsewhere: "https", query: true }, addressWanted),
    model: text(modelCharactersMax),
    temperature: fraction(0, consultTemperatureMax).default(consultTemperatureMax),
    timeout_ms: integer(1, timeoutMsMax, "milliseconds").default(consultTimeoutMsDefault),
    secret: secretName(),
    reply_bytes_max: integer(1, replyBytesMax, "bytes").default(consultReplyBytesDefault),
  }).optional(),
  approvals: z.strictObject({
    expire_minutes: fraction(0, expireMinutesMax, { unit: "minutes", aboveMin: true }).default(60),
  }).prefault({}),
  honcho: z.strictObject({
    url: address({ elsewhere: "https", query: false }, "an https address, or an http one of this device"),
    secret: secretName().optional(),
    timeout_ms: integer(1, timeoutMsMax, "milliseconds").default(30_000),
  }).optional(),
});

/** The file mapped to our names, or everything that is wrong with it. */
export function loadBrokerdConfig(paths: HomePaths): TomlResult<BrokerdConfig> {
  return loadToml(paths.brokerdToml, brokerdTable.transform(mapBrokerd), { absentIsEmpty: true });
}

function mapBrokerd({ consult, approvals, honcho }: z.output<typeof brokerdTable>): BrokerdConfig {
  return {
    consult: consult && {
      url: consult.url,
      model: consult.model,
      temperature: consult.temperature,
      timeoutMs: consult.timeout_ms,
      secretName: consult.secret,
      replyBytesMax: consult.reply_bytes_max,
    },
    approvals: { expireMinutes: approvals.expire_minutes },
    honcho: honcho && { url: honcho.url, secretName: honcho.secret, timeoutMs: honcho.timeout_ms },
  };
}
