// `deno task demo`: the three proofs of the milestone in a private temporary home, for a person to read. The roles are real processes under
// their real flags; the model and the cloud are practice servers inside this process. Leaves nothing behind, whatever ends it.

import { parseArgs } from "node:util";
import { hostAndPort } from "../../core/config/address.ts";
import { describeError, exitCodes } from "../../core/errors.ts";
import { ownEnvironment } from "../launch/environment.ts";
import { startConsultEndpoint } from "../stubs/consult_endpoint.ts";
import { startModelStub } from "../stubs/model.ts";
import { Bx } from "./bx.ts";
import { readAuditVerdict } from "./evidence.ts";
import { endOnSignals } from "./interrupt.ts";
import { demoScript } from "./practice_script.ts";
import { makePrivateHome } from "./private_home.ts";
import { judge, notShown, type Proof, type ProofId, proveBody, provePrefix, proveRefusal } from "./proofs.ts";
import { startRoles } from "./running_roles.ts";
import { Story, terminalColour } from "./story.ts";

const help = `Shows the three proofs of the milestone, in a private temporary home that is removed afterwards.

  deno task demo [--json] [--keep] [--sabotage P1|P2|P3]

  --json      the last line of the output is one JSON object
  --keep      keep the home, and say where it is
  --sabotage  break what one proof rests on, to see it fail:
              P1 the grant admits untrusted sessions, P2 one byte at the recorder is flipped, P3 the server shares one cache
  --help      this text

Exit codes: 0 all three hold, 1 one does not, 2 usage.`;

const proofIds = ["P1", "P2", "P3"] as const;
/** One command of the CLI; the longest runs one turn of a model that answers at once. */
const commandMsMax = 60_000;
const slots = { main: 0, background: 2 };
const consultModel = "practice-cloud";

interface DemoOptions {
  readonly json: boolean;
  readonly keep: boolean;
  readonly sabotage: ProofId | undefined;
}

interface Outcome {
  readonly proofs: readonly Proof[];
  readonly audit: { readonly ok: boolean; readonly text: string };
}

async function main(options: DemoOptions, signal: AbortSignal): Promise<number> {
  const story = new Story(terminalColour());
  const outcome = await play(options, story, signal).catch((error): Outcome => {
    if (signal.aborted) throw error;
    console.error(`demo: ${describeError(error)}`);
    const text = "the demo did not come so far";
    return { proofs: proofIds.map((id) => notShown(id, text)), audit: { ok: false, text } };
  });
  const { proofs, audit } = outcome;
  const ok = proofs.every((proof) => proof.ok) && audit.ok;
  story.heading("Verdict");
  if (!audit.ok) story.verdict("audit", audit);
  for (const proof of proofs) story.verdict(proof.id, proof);
  if (options.json) {
    console.log(JSON.stringify({
      ok,
      proofs: proofs.map(({ id, ok, text, facts }) => ({ id, ok, text, ...facts })),
      audit,
    }));
  }
  return ok ? exitCodes.done : exitCodes.failed;
}

async function play({ keep, sabotage }: DemoOptions, story: Story, signal: AbortSignal): Promise<Outcome> {
  const own = ownEnvironment();
  await using model = await startModelStub({ script: demoScript(), unifiedCache: sabotage === "P3" });
  await using recorder = await startConsultEndpoint({
    behaviour: (request) => {
      if (sabotage === "P2") request.body[request.body.length >> 1] ^= 1;
      return {
        kind: "answer",
        content: "A sourdough starter keeps about two weeks in the cold; feed it before you bake.",
      };
    },
  });
  await using home = await makePrivateHome({
    loopdToml: [
      `[inference]\nurl = "${model.url}"`,
      `[slots]\nmain = ${slots.main}\nbackground = ${slots.background}\n`,
    ].join("\n"),
    brokerdToml: `[consult]\nurl = "${recorder.url}"\nmodel = "${consultModel}"\nsecret = "consult"\n`,
    grantsToml: [
      `[[grant]]\ntool = "consult"\nmax_taint = "private"`,
      `allow_untrusted = ${sabotage === "P1"}\n`,
    ].join("\n"),
    secrets: { consult: "practice-key" },
  }, { prefix: "bx-demo-", keep });
  const { paths } = home;
  await using roles = await startRoles(paths, { own, signal });

  story.heading("Boxmaker: a subagent and a consult under the owner's rules");
  story.text(
    `In a private home, ${paths.home}${
      keep ? "" : ", removed at the end"
    }. The model is a practice model and`,
  );
  story.text(
    "the cloud a recorder, both on this device. The roles are the real ones, and this is all the network they may reach:",
  );
  for (const { role, argv } of roles.launches) {
    story.detail(role, `process ${roles.pids[role]}, ${networkOf(argv, paths.home)}`);
  }
  story.text(`(the model serves on ${hostAndPort(model.url)}, the recorder on ${hostAndPort(recorder.url)})`);
  if (sabotage !== undefined) story.text(`Sabotaged on purpose: ${sabotage} is to fail.`);

  const bx = new Bx({
    home: paths.home,
    own,
    signal,
    timeoutMs: commandMsMax,
    onCommand: (words) => story.command(words),
  });
  const stage = { bx, paths, model, recorder, story, slots, signal };
  const proofs = [
    await judge("P1", stage, proveRefusal),
    await judge("P2", stage, proveBody),
    await judge("P3", stage, provePrefix),
  ];
  story.heading("And the log that all this rests on");
  const audit = await readAuditVerdict(bx);
  story.check(audit);
  if (keep) story.text(`The home is kept: ${paths.home}`);
  return { proofs, audit };
}

/** The network grants of a recorded launch, without the home's path before each socket. */
function networkOf(argv: readonly string[], home: string): string {
  const flag = argv.find((word) => word.startsWith("--allow-net=")) ?? "--allow-net=";
  return flag.replaceAll(`unix:${home}/run/`, "");
}

function parseOptions(args: string[]): DemoOptions | "help" | { fault: string } {
  try {
    const { values } = parseArgs({
      args,
      options: {
        json: { type: "boolean" },
        keep: { type: "boolean" },
        sabotage: { type: "string" },
        help: { type: "boolean", short: "h" },
      },
    });
    if (values.help) return "help";
    const sabotage = proofIds.find((id) => id === values.sabotage);
    if (values.sabotage !== undefined && sabotage === undefined) {
      return { fault: `--sabotage is ${JSON.stringify(values.sabotage)}, wanted P1, P2 or P3` };
    }
    return { json: values.json ?? false, keep: values.keep ?? false, sabotage };
  } catch (error) {
    return { fault: describeError(error).split(". ")[0] };
  }
}

if (import.meta.main) {
  const options = parseOptions(Deno.args);
  if (options === "help") {
    console.log(help);
    Deno.exit(exitCodes.done);
  }
  if ("fault" in options) {
    console.error(`demo: ${options.fault}\n\n${help}`);
    Deno.exit(exitCodes.usage);
  }
  Deno.exit(await endOnSignals("demo", (signal) => main(options, signal)));
}
