// grants.toml: what each brokered tool may do, in the owner's order. Absent or empty, nothing is granted.
// Loads grants; which one admits a call is brokerd's to decide.

import { z } from "zod";
import type { HomePaths } from "../home.ts";
import { type SensitivityClass, sensitivityClasses } from "../labels.ts";
import { sessionIdCharactersMax } from "../limits.ts";
import { loadToml, type TomlResult } from "./toml_file.ts";
import { boolean, choice, integer, leaf } from "./wanted.ts";

export const grantModes = ["allow", "ask"] as const;
export type GrantMode = typeof grantModes[number];

export interface Grant {
  /** Place in the file, from 1. */
  readonly index: number;
  readonly tool: string;
  /** The highest class of session that may use it. */
  readonly maxTaint: SensitivityClass;
  /** Class of the answer. */
  readonly resultClass: SensitivityClass;
  /** Whether the answer makes its session untrusted. */
  readonly untrusted: boolean;
  /** Whether an untrusted session may use it. */
  readonly allowUntrusted: boolean;
  readonly mode: GrantMode;
  readonly perDay: number | undefined;
  /** Matched against the root ancestor's id; `*` stands for any characters, none included. */
  readonly sessions: readonly string[];
}

const grantsMax = 1_000;
const sessionPatternsMax = 64;
const perDayMax = 1_000_000;

const sessionPattern = leaf<string>(
  (value) => typeof value === "string" && new RegExp(`^[a-z0-9*-]{1,${sessionIdCharactersMax}}$`).test(value),
  { wanted: 'a session id in which * stands for any characters, such as "chat-*"', showText: true },
);

const grantTable = z.strictObject({
  tool: leaf<string>((value) => typeof value === "string" && /^[a-z][a-z0-9_]{0,63}$/.test(value), {
    wanted: 'the name of a brokered tool such as "consult"',
    showText: true,
  }),
  max_taint: choice(sensitivityClasses),
  result_class: choice(sensitivityClasses).default("private"),
  untrusted: boolean().default(true),
  allow_untrusted: boolean().default(false),
  mode: choice(grantModes).default("allow"),
  per_day: integer(1, perDayMax, "calls a day").optional(),
  sessions: z.array(sessionPattern)
    .min(1, { error: 'wanted at least one session pattern; leave the key out for all, that is ["*"]' })
    .max(sessionPatternsMax, { error: `at most ${sessionPatternsMax} session patterns` })
    .default(["*"]),
});

const grantsTable = z.strictObject({
  grant: z.array(grantTable).max(grantsMax, { error: `at most ${grantsMax} grants` }).default([]),
});

/** The grants in file order, with the bytes of the file, whose hash a `config` record pins; or everything that is wrong with it. */
export function loadGrants(paths: HomePaths): TomlResult<Grant[]> {
  return loadToml(paths.grantsToml, grantsTable.transform(({ grant }) => grant.map(mapGrant)), {
    absentIsEmpty: true,
  });
}

function mapGrant(table: z.output<typeof grantTable>, position: number): Grant {
  return {
    index: position + 1,
    tool: table.tool,
    maxTaint: table.max_taint,
    resultClass: table.result_class,
    untrusted: table.untrusted,
    allowUntrusted: table.allow_untrusted,
    mode: table.mode,
    perDay: table.per_day,
    sessions: table.sessions,
  };
}
