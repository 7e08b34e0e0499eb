// `bx audit`: show and verify the log, its head, prune. `show` and `verify` read the folder themselves, need no role and change
// nothing; their exit codes are interface. What they print of a record is made safe first: it holds what models and peers wrote.

import { readAudit } from "../../core/audit/read.ts";
import type { AuditHead } from "../../core/audit/record.ts";
import { firstPrev } from "../../core/audit/chain.ts";
import { verifyAudit } from "../../core/audit/verify.ts";
import { systemClock } from "../../core/clock.ts";
import { describeError, exitCodes } from "../../core/errors.ts";
import { auditHeadSchema } from "../../core/protocol/owner.ts";
import { auditLines } from "./audit_view.ts";
import { ask, doneSchema } from "./client.ts";
import { type Command, CommandFailure, type Context, type Given, sessionOf } from "./command.ts";
import { count, safeJson, visibleLine } from "./render.ts";

const dirOption = { flags: "--dir <dir>", text: "a folder of audit segments; default: audit/ of the home" };

export const auditCommands: readonly Command[] = [
  {
    words: "audit show",
    summary: "Show audit records, oldest first; reads the folder itself",
    options: [
      { flags: "--session <id>", text: "only this session's" },
      { flags: "--tool <tool>", text: "only this tool's" },
      {
        flags: "--since <time>",
        text: "from a time on: 2026-12-01, 2026-12-01T08:00:00Z, or 30m, 2h, 7d ago",
      },
      dirOption,
    ],
    example: "audit show --tool consult --since 2h",
    isDefault: true,
    run: show,
  },
  {
    words: "audit verify",
    summary:
      "Verify the audit log. Exit 0 sound, 10 altered, 11 cut short or rolled back, 12 torn last line, 20 could not run",
    options: [
      { flags: "--head <SEQ:HASH>", text: "a head written down elsewhere, as audit head prints it" },
      dirOption,
    ],
    example: "audit verify --head 41:9f2c…",
    run: verify,
  },
  {
    words: "audit head",
    summary: "Print the last record's SEQ:HASH, to be written down elsewhere for audit verify --head",
    example: "audit head",
    async run(context) {
      const head = await ask(context, "brokerd", { method: "GET", path: "/v1/audit/head" }, auditHeadSchema);
      context.print(context.json ? safeJson(head) : `${head.seq}:${head.hash}`);
    },
  },
  {
    words: "audit prune",
    summary: "Drop whole old segments; what was dropped is recorded with its last hash",
    options: [{
      flags: "--before <date>",
      text: "a day as 2026-12-01: segments that end before it",
      required: true,
    }],
    example: "audit prune --before 2026-12-01",
    async run(context, given) {
      const before = given.option("before") ?? "";
      if (!isDay(before)) throw misfit("--before", before, "a day as 2026-12-01");
      const request = { method: "POST", path: "/v1/audit/prune", body: { before } } as const;
      const answer = await ask(context, "brokerd", request, doneSchema);
      const dropped = Array.isArray(answer.segments) ? answer.segments.length : 0;
      context.print(
        context.json ? safeJson(answer) : `dropped ${count(dropped, "segment")} that ended before ${before}`,
      );
    },
  },
];

async function show(context: Context, given: Given): Promise<number> {
  const session = given.option("session");
  const filter = {
    session: session === undefined ? undefined : sessionOf(session),
    tool: given.option("tool"),
    since: sinceOf(given.option("since")),
  };
  const dir = given.option("dir") ?? context.home.audit;
  let unreadable = 0;
  try {
    for await (const line of readAudit(dir, filter)) {
      if ("record" in line) {
        context.print(
          context.json ? safeJson(line.record) : auditLines(line.record, context.paint).join("\n"),
        );
      } else {
        unreadable++;
        context.warn(
          `${visibleLine(line.unreadable.segment)}: no readable record at byte ${line.unreadable.offset}`,
        );
      }
    }
  } catch (error) {
    if (error instanceof Deno.errors.BrokenPipe) throw error;
    throw new CommandFailure(
      exitCodes.failed,
      `cannot read the audit log in ${visibleLine(dir)}: ${visibleLine(describeError(error), 300)}`,
    );
  }
  if (unreadable > 0) context.warn("some lines are not readable; bx audit verify says what that means");
  return unreadable > 0 ? exitCodes.failed : exitCodes.done;
}

async function verify(context: Context, given: Given): Promise<number> {
  const head = headOf(given.option("head"));
  const dir = given.option("dir") ?? context.home.audit;
  const verdict = await verifyAudit(dir, { head });
  if (context.json) {
    context.print(safeJson(verdict));
    return verdict.exit;
  }
  context.print(context.paint(verdict.exit === 0 ? "green" : "red", visibleLine(verdict.text)));
  for (const note of verdict.notes) context.print(visibleLine(note));
  if (verdict.last !== undefined) context.print(`head  ${verdict.last.seq}:${verdict.last.hash}`);
  if ((head === undefined || head.seq === 0) && verdict.exit === 0) {
    context.print(context.paint(
      "dim",
      "Held against head.json only: a log that was rewritten whole shows with --head SEQ:HASH kept elsewhere.",
    ));
  }
  return verdict.exit;
}

function headOf(given: string | undefined): AuditHead | undefined {
  if (given === undefined) return undefined;
  const match = /^(0|[1-9]\d{0,14}):([0-9a-f]{64})$/.exec(given);
  // An empty log's head has one form: anything else at 0 was never printed.
  if (match === null || (match[1] === "0" && match[2] !== firstPrev)) {
    throw misfit("--head", given, "SEQ:HASH as bx audit head prints it, 64 characters of 0-9 and a-f");
  }
  return { seq: Number(match[1]), hash: match[2] };
}

const unitMs: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/** As records carry their time, so that comparing texts compares times. */
function sinceOf(given: string | undefined): string | undefined {
  if (given === undefined) return undefined;
  const ago = /^(\d{1,6})([mhd])$/.exec(given);
  if (ago !== null) return new Date(systemClock.now() - Number(ago[1]) * unitMs[ago[2]]).toISOString();
  const isTime = isDay(given) ||
    /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:\d{2})$/.test(given);
  if (!isTime || Number.isNaN(Date.parse(given))) {
    throw misfit("--since", given, "a day as 2026-12-01, a time as 2026-12-01T08:00:00Z, or 30m, 2h, 7d");
  }
  return new Date(given).toISOString();
}

function isDay(text: string): boolean {
  return /^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(Date.parse(text)) &&
    new Date(text).toISOString().startsWith(text);
}

function misfit(option: string, value: string, wanted: string): CommandFailure {
  return new CommandFailure(
    exitCodes.usage,
    `${option} is ${JSON.stringify(visibleLine(value, 100))}, wanted ${wanted}`,
  );
}
