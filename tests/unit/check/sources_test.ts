// The source checks find what they promise to find, at its line, and leave the nearest allowed form alone.

import { assertEquals } from "@std/assert";
import { testCoverage } from "../../../tools/check/check_tests.ts";
import { checkSources } from "../../../tools/check/main.ts";
import { faultCaseIds, requirementIds } from "../../../tools/check/requirements.ts";
import { scan, type SourceFile } from "../../../tools/check/scan.ts";

const packages = ["zod", "hono", "hono/", "@std/assert", "fast-check"];

function source(path: string, text: string): SourceFile {
  return { path, text, tokens: scan(text) };
}

/** What is found in `files`, as `path:line` and the text's first words. */
function found(files: Record<string, string>): string[] {
  return checkSources(Object.entries(files).map(([path, text]) => source(path, text)), packages)
    .map(({ path, line, text }) => `${path}:${line}: ${text.split(", wanted")[0]}`);
}

const shared = { "core/ids.ts": "export type Id = string;\n" };

for (
  const [role, other] of [["loopd", "brokerd"], ["brokerd", "loopd"], ["core", "loopd"], ["tools", "brokerd"]]
) {
  Deno.test(`K4 ${role} may import core, and of ${other} not even a type`, () => {
    const there = { [`${other}/main.ts`]: "export type T = 1;\n" };
    assertEquals(
      found({ ...shared, ...there, [`${role}/a.ts`]: 'import type { Id } from "../core/ids.ts";\n' }),
      [],
    );
    for (
      const line of [
        `import type { T } from "../${other}/main.ts";`,
        `export * from "../${other}/main.ts";`,
        `export type { T } from '../${other}/main.ts';`,
        `import "../${other}/main.ts";`,
        `const a = await import("../${other}/main.ts");`,
        `let t: import("../${other}/main.ts").T;`,
        `import thing, { type T as U } from "./../${other}/main.ts";`,
      ]
    ) {
      assertEquals(found({ ...shared, ...there, [`${role}/a.ts`]: `\n${line}\n` }), [
        `${role}/a.ts:2: ${role} imports ${other}/main.ts`,
      ]);
    }
  });
}

Deno.test("K4 tests may import every part", () => {
  assertEquals(
    found({
      "loopd/a.ts": "",
      "brokerd/a.ts": "",
      "tools/a.ts": "",
      "tests/a_test.ts": 'import "../loopd/a.ts";\nimport "../brokerd/a.ts";\nimport "../tools/a.ts";\n',
    }),
    [],
  );
});

Deno.test("K4 an import that leaves the tree is refused", () => {
  assertEquals(found({ "tools/a.ts": 'import "../../other/a.ts";\n' }), [
    "tools/a.ts:1: tools imports ../other/a.ts",
  ]);
});

Deno.test("K4 packages come by their bare names, never by a URL", () => {
  assertEquals(
    found({
      "core/a.ts":
        'import { z } from "zod";\nimport { stream } from "hono/streaming";\nimport fs from "node:fs";\n',
    }),
    [],
  );
  for (
    const specifier of [
      "npm:zod@4",
      "jsr:@std/toml",
      "https://deno.land/x.ts",
      "data:text/javascript,",
      "zod/mini",
    ]
  ) {
    assertEquals(found({ "core/a.ts": `import {} from "${specifier}";\n` }), [
      `core/a.ts:1: imports "${specifier}"`,
    ]);
  }
  assertEquals(found({ "core/a.ts": "await import(where);\n" }), [
    "core/a.ts:1: import() of a computed name",
  ]);
  assertEquals(found({ "core/a.ts": 'import { assert } from "@std/assert";\n' }), [
    "core/a.ts:1: imports @std/assert",
  ]);
});

Deno.test("K4 the practice servers are imported by the demo, not by the CLI", () => {
  const stub = { "tools/stubs/model.ts": "" };
  assertEquals(found({ ...stub, "tools/demo/main.ts": 'import "../stubs/model.ts";\n' }), []);
  assertEquals(found({ ...stub, "tools/bxctl/main.ts": 'import "../stubs/model.ts";\n' }), [
    "tools/bxctl/main.ts:1: imports tools/stubs/model.ts",
  ]);
});

Deno.test("K4 a cycle is named once, with its way, and a diamond is none", () => {
  assertEquals(
    found({
      "core/a.ts": 'import "./b.ts";\nimport "./c.ts";\n',
      "core/b.ts": 'import "./d.ts";\n',
      "core/c.ts": 'import "./d.ts";\n',
      "core/d.ts": "",
    }),
    [],
  );
  assertEquals(
    found({
      "core/a.ts": 'import "./b.ts";\n',
      "core/b.ts": '\nimport type {} from "./c.ts";\n',
      "core/c.ts": 'import "./a.ts";\n',
    }),
    ["core/c.ts:1: import cycle core/a.ts -> core/b.ts -> core/c.ts -> core/a.ts"],
  );
});

Deno.test("K4 what only looks like an import is none", () => {
  assertEquals(
    found({
      "core/a.ts": [
        '// import "npm:a";',
        '/* import "npm:b"; */',
        "const text = \"import 'npm:c'\";",
        'const row = { from: "npm:d", import: "npm:e" };',
        'const more = `import "npm:f" ${row.from + "npm:g"} import("npm:h")`;',
        'const list = Array.from("npm:i");',
        'const pattern = /import "npm:j"\'`/;',
        'const half = 4 / 2; const other = "x" + `a${half / 2}b`;',
        "const url = import.meta.url;",
      ].join("\n"),
    }),
    [],
  );
});

Deno.test("K1 a schema that lets unknown keys through is refused, a strict one is not", () => {
  assertEquals(
    found({ "core/a.ts": 'const a = z.strictObject({ b: z.string() });\n// z.object({})\n"z.object({})"' }),
    [],
  );
  for (
    const code of ["z.object({})", "z\n.looseObject({})", "a.passthrough()", "a.loose()", "a.catchall(b)"]
  ) {
    assertEquals(found({ "core/a.ts": `const x = ${code};\n` }).length, 1, code);
  }
});

Deno.test("C5 a secret's value in a text is refused, its name and the one header are not", () => {
  for (
    const code of [
      "const header = { authorization: `Bearer ${bearer}` };",
      "const header = { authorization: `Bearer ${this.#options.secret}` };",
      'const list = ["authorization", `Bearer ${secret}`];',
      "throw new UsageError(`cannot read ${secretName}`);",
      "const length = `${secret.length} characters`;",
      "const copy = { secret: value, bearer };",
      'console.log("secret");',
    ]
  ) {
    assertEquals(found({ "brokerd/a.ts": code }), [], code);
  }
  for (
    const code of [
      "const text = `the key is ${secret}`;",
      "const text = `the key is ${config.bearer.slice(1)}`;",
      "const header = { authorization: `Bearer ${bearer} ${time}` };",
      "const header = { authorization: `Bearer ${prefix + secret}` };",
      "const header = { purpose: `Bearer ${secret}` };",
      'throw new UsageError("bad key " + secretValue);',
      "console.error(authorization);",
      "console.log({ a: [apiKey] });",
    ]
  ) {
    assertEquals(found({ "brokerd/a.ts": code }).length, 1, code);
  }
});

Deno.test("the coverage check reads names and rows of tests, nothing else", () => {
  const tests = source(
    "tests/unit/a_test.ts",
    [
      'Deno.test("S1 first", () => {});',
      "Deno.test(`on the slot S2 ${x}`, () => {});",
      'Deno.test({ name: "about C3 and T4", fn() {} });',
      'refuses("P1, B2: together", 1);',
      'const other = "the S5 of it"; // S6 there',
      'const id = "S7";',
      'Deno.test("F24 resets", () => {});',
    ].join("\n"),
  );
  const { missingRequirements, missingFaultCases } = testCoverage([tests, source("core/a.ts", 'f("S8 x");')]);
  assertEquals(
    requirementIds.filter((id) => !missingRequirements.includes(id)),
    ["P1", "S1", "S2", "C3", "T4", "B2"],
  );
  assertEquals(faultCaseIds.filter((id) => !missingFaultCases.includes(id)), ["F24"]);
});

Deno.test("lines are counted through templates, comments and strings", () => {
  const words = scan('a\n/* x\n\n*/ b `one\n${c\n} two\n` d "\\"" e').filter(({ kind }) => kind === "word");
  assertEquals(words.map(({ text, line, interpolations }) => [text, line, interpolations]), [
    ["a", 1, 0],
    ["b", 4, 0],
    ["c", 5, 1],
    ["d", 7, 0],
    ["e", 7, 0],
  ]);
});
