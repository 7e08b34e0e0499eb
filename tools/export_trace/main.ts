// `deno task export-trace --to URL`: sends the spans in `trace/` to a collector. This is the program that the owner starts; it reads what
// they wrote and starts the one that sends, with the flags of its row in plan.ts: one host, and of the home nothing but spans.

import { join } from "node:path";
import { parseArgs } from "node:util";
import { addressProblem, addressProblemText } from "../../core/config/address.ts";
import { exitCodes, type Fault, UsageError } from "../../core/errors.ts";
import { chooseHome, homeFaults, homePaths, resolveHome } from "../../core/home.ts";
import { type OwnEnvironment, ownEnvironment, personEnvironment } from "../launch/environment.ts";
import { denoArguments, plan } from "../launch/plan.ts";
import { printFaults } from "../launch/program.ts";
import { ownRoot } from "../launch/root.ts";

const help =
  `Sends the spans that loopd wrote ([trace] enabled = true) to an OpenTelemetry collector, each once.

  deno task export-trace --to URL [--secret NAME] [--home DIR] [--json]

  --to URL       https, or http on this device; where it names no path, /v1/traces
  --secret NAME  a file in secrets/ whose key goes along as a bearer value
  --home DIR     the home; else $BOXMAKER_HOME, else $HOME/.boxmaker
  --json         one object: {lines, spans, refused, skippedBytes, done}
  --help         this text

What was sent is remembered in trace/exported.json, for one URL; another URL begins with the oldest span. Exit codes: 0 all is sent,
1 the collector did not take it (run it again later), 2 usage.`;

/** The command line after the name of the Deno binary. Throws UsageError. */
export function exportArguments(args: readonly string[], own: OwnEnvironment, root = ownRoot): string[] {
  const { values } = parseArgs({
    args: [...args],
    options: {
      to: { type: "string" },
      secret: { type: "string" },
      home: { type: "string" },
      json: { type: "boolean" },
    },
  });
  const home = resolveHome(chooseHome({ flag: values.home, env: own }));
  const faults: Fault[] = homeFaults(home);
  const problem = addressProblem(values.to, { elsewhere: "https", query: false });
  if (values.to === undefined) {
    faults.push({ text: "export-trace: --to URL is wanted, the collector's address" });
  } else if (problem !== undefined) {
    faults.push({
      text: "export-trace: --to wants an https address, or an http one of this device: " +
        addressProblemText(problem, values.to),
    });
  }
  const secret = values.secret;
  if (secret !== undefined && !/^[a-z0-9_-]{1,64}$/.test(secret)) {
    faults.push({
      text: "export-trace: --secret wants the name of a file in secrets/, never the key itself",
    });
  }
  if (faults.length > 0 || values.to === undefined) throw new UsageError(faults);
  const url = collectorUrl(values.to);
  return [
    ...denoArguments(root),
    ...plan("export-trace", { paths: homePaths(home), collectorUrl: url, collectorSecret: secret }),
    join(root, "tools", "export_trace", "exporter.ts"),
    ...["--home", home, "--to", url],
    ...(secret === undefined ? [] : ["--secret", secret]),
    ...(values.json === true ? ["--json"] : []),
  ];
}

/** The path that every collector serves, where the owner wrote none. */
function collectorUrl(to: string): string {
  const url = new URL(to);
  if (url.pathname === "/") url.pathname = "/v1/traces";
  return url.href;
}

async function main(args: string[]): Promise<number> {
  if (args.includes("--help") || args.includes("-h")) {
    console.log(help);
    return exitCodes.done;
  }
  const own = ownEnvironment();
  try {
    const { code } = await new Deno.Command(Deno.execPath(), {
      args: exportArguments(args, own),
      clearEnv: true,
      env: personEnvironment(own),
      stdin: "null",
      stdout: "inherit",
      stderr: "inherit",
    }).spawn().status;
    return code;
  } catch (error) {
    if (error instanceof UsageError) printFaults(error.faults);
    else if (error instanceof TypeError) {
      console.error(`export-trace: ${error.message.split(". ")[0]}\n\n${help}`);
    } else throw error;
    return exitCodes.usage;
  }
}

if (import.meta.main) Deno.exit(await main(Deno.args));
