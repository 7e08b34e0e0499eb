// `deno task layers`: the four points that are safety and not taste (import table, cycles, strict schemas, no secret in a text),
// and which requirement numbers no test names. Prints `FILE:LINE: what, wanted` and exits 1 on any finding; changes nothing.

import { testCoverage } from "./check_tests.ts";
import { loadSources } from "./files.ts";
import { checkLayers } from "./layers.ts";
import type { Finding, SourceFile } from "./scan.ts";
import { checkSecretTexts } from "./secret_texts.ts";
import { checkStrictSchemas } from "./strict_schemas.ts";

export function checkSources(files: readonly SourceFile[], packages: readonly string[]): Finding[] {
  return [...checkLayers(files, packages), ...checkStrictSchemas(files), ...checkSecretTexts(files)];
}

if (import.meta.main) {
  const flags = Deno.args.filter((argument) => argument.startsWith("--"));
  const unknown = flags.find((flag) => flag !== "--strict-coverage");
  if (unknown !== undefined) {
    console.error(`check: unknown option ${unknown}, wanted --strict-coverage or none`);
    Deno.exit(2);
  }
  const root = Deno.args.find((argument) => !argument.startsWith("--")) ?? ".";
  const files = await loadSources(root);
  const { imports } = JSON.parse(await Deno.readTextFile(`${root}/deno.json`));
  const findings = checkSources(files, Object.keys(imports));
  for (const { path, line, text } of findings) console.error(`${path}:${line}: ${text}`);

  const { missingRequirements, missingFaultCases } = testCoverage(files);
  const strict = flags.includes("--strict-coverage");
  if (missingRequirements.length > 0) {
    console.error(`${strict ? "" : "warning: "}no test names ${missingRequirements.join(" ")}`);
  }
  if (missingFaultCases.length > 0) console.log(`no test names the cases ${missingFaultCases.join(" ")} yet`);
  console.log(`${files.length} files read, ${findings.length} findings`);
  if (findings.length > 0 || (strict && missingRequirements.length > 0)) Deno.exit(1);
}
