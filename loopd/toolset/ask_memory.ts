// ask_memory(question): the owner's memory service, where one is configured. It leaves the device, so brokerd decides and sends; here only
// the rule on who speaks: a session without a speaker has nobody the service could answer about (S13).

import { z } from "zod";
import { sessionKind } from "../../core/ids.ts";
import type { BrokerClient } from "../broker_client.ts";
import type { Tool } from "../turn_types.ts";
import { ok } from "./results.ts";

export function askMemoryTool(broker: BrokerClient): Tool<{ question: string }> {
  return {
    definition: {
      name: "ask_memory",
      description: "Ask the owner's memory service a question about the owner, where one is configured.",
      parameters: {
        type: "object",
        properties: { question: { type: "string" } },
        required: ["question"],
        additionalProperties: false,
      },
    },
    argumentsSchema: z.strictObject({ question: z.string().min(1) }),
    async run(args, context) {
      const kind = sessionKind(context.turn.session.id);
      if (kind !== "chat" && kind !== "mm") {
        return ok(`ask_memory is skipped here: a ${kind} session has no speaker`);
      }
      return await broker.callTool("ask_memory", { ...args }, context);
    },
    resume: (_args, context) => broker.resumeCall("ask_memory", context),
  };
}
