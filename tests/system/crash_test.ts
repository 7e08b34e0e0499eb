// The short form of `deno task soak`: real roles, killed at thirty fixed points of a turn with a child, a grandchild and consults, and what
// is left judged by the soak's own checks. The points and the numbers they are drawn from are fixed, so that a failure comes again.

import { assertEquals } from "@std/assert";
import { describePoint, drawPoints, type Measure, type Mode } from "../../tools/soak/points.ts";
import { playPoint } from "../../tools/soak/run.ts";
import { openStage } from "../../tools/soak/stage.ts";

const seed = 20_261_201;
const pointsEach = 10;
/** As an undisturbed run on a quiet machine does; a point past its end falls after the turn. */
const measure: Measure = {
  steps: { loopd: 38, brokerd: 21 },
  modelRequests: 10,
  consults: 3,
  turnMs: 300,
};

async function killedAt(mode: Mode): Promise<void> {
  await using stage = await openStage();
  const signal = new AbortController().signal;
  const points = drawPoints({ seed, measure, modes: [mode], twice: false });
  for (let played = 0; played < pointsEach; played++) {
    const point = points.next().value;
    const { violations, home } = await playPoint(stage, point, signal);
    assertEquals(violations, [], `${describePoint(point)}; the home is kept: ${home}`);
  }
}

Deno.test("F1 F2 after kill -9 of loopd at ten points every call has one result, no consult is sent twice, no ended child runs again", () =>
  killedAt("L"));

Deno.test("F1 after kill -9 of brokerd at ten points what was decided reaches the model, what is unknown is not sent again, and the audit log verifies", () =>
  killedAt("B"));

Deno.test("F1 after kill -9 of both roles at ten points the turn ends, and the next one can ask the cloud", () =>
  killedAt("LB"));
