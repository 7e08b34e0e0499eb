// What the three sockets share: the version in the path, the hello, the shape of a refusal.

import { z } from "zod";

export const protocolVersion = 1;
export const roleNames = ["loopd", "brokerd"] as const;
export type RoleName = typeof roleNames[number];

/** An answer to a request that was not well formed: bad JSON, unknown key, wrong type, bad id, unknown path, too large. */
export const errorAnswerSchema = z.strictObject({
  status: z.literal("error"),
  code: z.string(),
  text: z.string(),
});
export type ErrorAnswer = z.infer<typeof errorAnswerSchema>;

export function errorAnswer(code: string, text: string): ErrorAnswer {
  return { status: "error", code, text };
}

/** An empty JSON object, for requests that carry nothing. */
export const emptySchema = z.strictObject({});

/** SHA-256 in lower-case hex. */
export const hashSchema = z.string().regex(/^[0-9a-f]{64}$/);

/** `POST /v1/probe` of either role: one line of `bx doctor` each. */
export const probeAnswerSchema = z.strictObject({
  findings: z.array(z.strictObject({
    check: z.string(),
    ok: z.boolean(),
    text: z.string(),
    advice: z.string().optional(),
  })),
});
export type ProbeFinding = z.infer<typeof probeAnswerSchema>["findings"][number];
