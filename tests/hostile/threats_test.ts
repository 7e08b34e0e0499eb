// docs/threats.md is held to the repository: every test that it names exists, every row names one, and its figures are those of today
// within ten per cent.

import { assert, assertEquals } from "@std/assert";
import { loadFootprint } from "../../tools/check/footprint.ts";
import { loadSources } from "../../tools/check/files.ts";
import { ownRoot } from "../../tools/launch/root.ts";

const page = await Deno.readTextFile(`${ownRoot}/docs/threats.md`);
const driftMax = 0.1;

/** First arguments of Deno.test, as plain texts. */
async function testNames(): Promise<Set<string>> {
  const names = (await loadSources(ownRoot)).filter(({ path }) => path.startsWith("tests/")).flatMap(
    ({ tokens }) =>
      tokens.flatMap(({ text, kind }, at) =>
        kind === "text" && tokens[at - 1]?.text === "(" && tokens[at - 2]?.text === "test" ? [text] : []
      ),
  );
  return new Set(names);
}

/** The rows of every table that has a column "shown by", each by its columns. */
function rows(): Record<string, string>[] {
  const found: Record<string, string>[] = [];
  let columns: string[] = [];
  for (const line of page.split("\n")) {
    if (!line.startsWith("|")) {
      columns = [];
      continue;
    }
    const cells = line.slice(1, -1).split("|").map((cell) => cell.trim());
    if (columns.length === 0) columns = cells;
    else if (columns.includes("shown by") && !/^-+$/.test(cells[0])) {
      found.push(Object.fromEntries(columns.map((column, at) => [column, cells[at] ?? ""])));
    }
  }
  return found;
}

const quoted = (text: string) => [...text.matchAll(/`([^`]+)`/g)].map(([, name]) => name);

Deno.test("each row of docs/threats.md names tests, and each of them exists", async () => {
  const names = await testNames();
  assert(names.size > 400, `${names.size} names`);
  const table = rows();
  assert(table.length > 30, `${table.length} rows`);
  const missing: string[] = [];
  for (const row of table) {
    assertEquals(Object.values(row).filter((cell) => cell === ""), [], JSON.stringify(row));
    const shown = quoted(row["shown by"]);
    assert(shown.length > 0, `no test for: ${row.vector}`);
    missing.push(...shown.filter((name) => !names.has(name)));
  }
  for (const line of page.split("\n").filter((line) => line.startsWith("The controls: "))) {
    missing.push(...quoted(line).filter((name) => !names.has(name)));
  }
  assertEquals(missing, []);
});

Deno.test("the figures of docs/threats.md are those of the sources, within ten per cent, and its packages exactly", async () => {
  const { brokerd, core, packages } = await loadFootprint(ownRoot);
  for (const [name, part] of [["brokerd", brokerd], ["core, as far as brokerd imports it", core]] as const) {
    const line = new RegExp(`^${name}: (\\d+) files, ([\\d,]+) lines, ([\\d,]+) of them with code$`, "m")
      .exec(page);
    assert(line !== null, `docs/threats.md has no line "${name}: N files, N lines, N of them with code"`);
    const written = line.slice(1).map((text) => Number(text.replaceAll(",", "")));
    for (const [at, now] of [part.files, part.lines, part.codeLines].entries()) {
      assert(
        Math.abs(written[at] - now) <= driftMax * now,
        `docs/threats.md says ${written[at]} of ${name} where there are ${now}: run deno task footprint`,
      );
    }
  }
  assert(page.includes(`\npackages at run time: ${packages.join(", ")}\n`), packages.join(", "));
});
