// clock(): the time, as a tool, so that it never stands in a prefix.

import { z } from "zod";
import type { Clock } from "../../core/clock.ts";
import { timeLine } from "../context/time_line.ts";
import type { Tool } from "../turn_types.ts";
import { ok } from "./results.ts";

export function clockTool(clock: Clock, timeZone: string): Tool<Record<string, never>> {
  return {
    definition: {
      name: "clock",
      description: "The date and time now, in the owner's time zone and in UTC.",
      parameters: { type: "object", properties: {}, additionalProperties: false },
    },
    argumentsSchema: z.strictObject({}),
    run() {
      const now = clock.now();
      return Promise.resolve(ok(`${timeLine(now, timeZone)} (${new Date(now).toISOString()})`));
    },
  };
}
