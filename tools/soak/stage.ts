// What the runs of a soak share: the practice model, the recorder, and the roles' entries. What the two servers say in a run is the run's to
// choose; nothing of one run is left for the next but numbers that go on.

import { type OwnEnvironment, ownEnvironment } from "../launch/environment.ts";
import type { Behaviour } from "../stubs/consult_behaviour.ts";
import {
  type ConsultEndpoint,
  type ConsultRequest,
  startConsultEndpoint,
} from "../stubs/consult_endpoint.ts";
import { type ModelStub, startModelStub } from "../stubs/model.ts";
import type { Reply, ScriptRequest } from "../stubs/model_script.ts";
import { type Entries, makeEntries } from "./entries.ts";

/** As late as a real server may notice that a killed loopd has left (facts 2.4), and later than loopd is back. */
const cancelNoticeMs = 1_000;

/** How a run answers what its roles ask. */
export interface Answers {
  model(request: ScriptRequest): Reply;
  consult(request: ConsultRequest): Promise<Behaviour>;
}

export interface Stage extends AsyncDisposable {
  readonly model: ModelStub;
  readonly recorder: ConsultEndpoint;
  readonly entries: Entries;
  readonly own: OwnEnvironment;
  /** Who answers from now on. */
  answers: Answers | undefined;
}

export async function openStage(): Promise<Stage> {
  await using opening = new AsyncDisposableStack();
  const answers = () => {
    if (stage.answers === undefined) throw new Error("something was asked between two runs");
    return stage.answers;
  };
  const model = opening.use(
    await startModelStub({
      strictPairing: true,
      cancelNoticeMs,
      script: (request) => answers().model(request),
    }),
  );
  const recorder = opening.use(
    await startConsultEndpoint({ behaviour: (request) => answers().consult(request) }),
  );
  const entries = opening.use(await makeEntries());
  const all = opening.move();
  const stage: Stage = {
    model,
    recorder,
    entries,
    own: ownEnvironment(),
    answers: undefined,
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
  return stage;
}
