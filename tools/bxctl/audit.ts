// `bx audit`: show and verify the log, its head, prune. `show` and `verify` read the folder themselves, need no role and change
// nothing; their exit codes are interface.

import { exitCodes } from "../../core/errors.ts";
import { auditHeadSchema } from "../../core/protocol/owner.ts";
import { ask, doneSchema } from "./client.ts";
import { type Command, CommandFailure } from "./command.ts";
import { safeJson } from "./render.ts";

const dayPattern = /^\d{4}-\d{2}-\d{2}$/;

export const auditCommands: readonly Command[] = [
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
      if (!dayPattern.test(before) || Number.isNaN(Date.parse(before))) {
        throw new CommandFailure(
          exitCodes.usage,
          `--before ${JSON.stringify(before)} is no day, wanted one as 2026-12-01`,
        );
      }
      const request = { method: "POST", path: "/v1/audit/prune", body: { before } } as const;
      const answer = await ask(context, "brokerd", request, doneSchema);
      context.print(safeJson(answer));
    },
  },
];
