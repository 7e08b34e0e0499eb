// K1: every fault of a file at once, each with file, line, key and wanted form, and no secret in any of them.

import { assertEquals, assertStringIncludes } from "@std/assert";
import { loadBrokerdConfig } from "../../../core/config/brokerd_toml.ts";
import { loadGrants } from "../../../core/config/grants_toml.ts";
import { loadLoopdConfig } from "../../../core/config/loopd_toml.ts";
import type { TomlResult } from "../../../core/config/toml_file.ts";
import { keyLines } from "../../../core/config/toml_lines.ts";
import { describeFault } from "../../../core/errors.ts";
import { configFileBytesMax } from "../../../core/limits.ts";
import { withHome } from "./home_dir.ts";

/** The faults as the owner reads them, without the home's path. */
function faultTexts(result: TomlResult<unknown>, home: string): string[] {
  if (!("faults" in result)) return [];
  return result.faults.map((fault) =>
    describeFault(fault).replaceAll(`${home}/`, "").replace(" (see docs/runbook.md#config-fault)", "")
  );
}

const manyFaults = `# a comment that looks like = a key
surprise = 1
[inference]
url = "http://127.0.0.1:8080"
modle = "local" # misspelt
liveness_ms = "soon"

[slots]
main = 2
background = 2

[tools]
result_chars = 0
[[cron]]
name = "Morning"
schedule = "0 7 * * *"
task = "x"
[[cron]]
name = "evening"
schedule = "99 * * * *"
`;

Deno.test("K1 all faults of one file come at once, in file order, with line, key, wanted form and the known keys", () =>
  withHome({ loopd: manyFaults }, (paths) => {
    assertEquals(faultTexts(loadLoopdConfig(paths), paths.home), [
      "loopd.toml:2: surprise: unknown key; known keys are inference, slots, session, tools, compact, broker, clock, heartbeat, cron, trace",
      "loopd.toml:5: inference.modle: unknown key; known keys are url, remote, model, secret, liveness_ms, max_tokens, temperature, history; did you mean model?",
      "loopd.toml:6: inference.liveness_ms: wanted an integer from 1 to 3600000 (milliseconds); found a string",
      "loopd.toml:10: slots.background: is the same slot as slots.main; background work would push the live conversation out of its prompt cache",
      "loopd.toml:13: tools.result_chars: wanted an integer from 1 to 1000000 (characters); found 0",
      'loopd.toml:15: cron[1].name: wanted a name of a-z, 0-9 and -, 1 to 60 characters; found "Morning"',
      "loopd.toml:18: cron[2].task: missing; wanted a text of 1 to 16000 characters that is not all blank",
      'loopd.toml:20: cron[2].schedule: wanted a schedule of five fields such as "0 7 * * *", or six with seconds first, that comes due at some time; found "99 * * * *"',
    ]);
  }));

Deno.test("K1 an unknown key is named in every one of the three files, beside the sound one", async () => {
  const cases = [
    {
      load: loadLoopdConfig,
      sound: { loopd: "[session]\nclass = 'public'\n" },
      broken: { loopd: "[session]\nclas = 'public'\n" },
      text:
        "loopd.toml:2: session.clas: unknown key; known keys are class, tool_iterations, resume_hours; did you mean class?",
    },
    {
      load: loadBrokerdConfig,
      sound: { brokerd: "approvals.expire_minutes = 5\n" },
      broken: { brokerd: "approvals.expires = 5\n" },
      text: "brokerd.toml:1: approvals.expires: unknown key; known keys are expire_minutes",
    },
    {
      load: loadGrants,
      sound: { grants: "[[grant]]\ntool = 'consult'\nmax_taint = 'private'\n" },
      broken: { grants: "grant = [\n { tool = 'consult', max_taint = 'private', per_week = 3 },\n]\n" },
      text: "grants.toml:2: grant[1].per_week: unknown key; known keys are " +
        "tool, max_taint, result_class, untrusted, allow_untrusted, mode, per_day, sessions",
    },
  ];
  for (const { load, sound, broken, text } of cases) {
    await withHome(sound, (paths) => assertEquals(faultTexts(load(paths), paths.home), []));
    await withHome(broken, (paths) => assertEquals(faultTexts(load(paths), paths.home), [text]));
  }
});

Deno.test("F27 a key pasted into any place of a file appears in no fault", async () => {
  const planted = "sk-PLANTED-0123456789";
  const texts = [
    `[consult]\nsecret = ${planted}\n`,
    `[consult]\nsecret = "${planted}"\n`,
    `[consult]\nsecret = ["${planted}"]\n`,
    `[consult]\nmodel = { key = "${planted}" }\ntimeout_ms = "${planted}"\n`,
    `[consult]\nurl = "https://user:${planted}@api.example.com/"\n`,
    `[consult]\nurl = "ftp://api.example.com/?key=${planted}"\n`,
    `[consult]\nurl = "http://api.example.com/?key=${planted}"\n`,
    `consult = "${planted}"\n`,
    `${planted}\n`,
    `a = 1\na = "${planted}"\n`,
  ];
  for (const text of texts) {
    await withHome({ brokerd: text }, (paths) => {
      const faults = faultTexts(loadBrokerdConfig(paths), paths.home);
      assertEquals(faults.length > 0, true, text);
      assertEquals(faults.join("\n").includes("PLANTED"), false, faults.join("\n"));
    });
  }
});

Deno.test("K1 a text that is no TOML is answered with line and column, no source text", () =>
  withHome({ loopd: '[slots]\nmain = 0\nmodel = local"x\n' }, (paths) => {
    const [text, ...more] = faultTexts(loadLoopdConfig(paths), paths.home);
    assertEquals(more, []);
    assertStringIncludes(text, "loopd.toml:3: is not valid TOML at column ");
    assertEquals(text.includes("local"), false);
  }));

for (
  const [what, loopd, wanted] of [
    [
      "a table",
      "# slots\n[slots]\nmain = 0\n\n[clock]\n[slots]\nbackground = 1\n",
      "loopd.toml:6: the table [slots] stands twice, first on line 2; write all its keys under one of them",
    ],
    [
      "a table that the text ends with",
      "[slots]\n[slots]",
      "loopd.toml:2: the table [slots] stands twice, first on line 1; write all its keys under one of them",
    ],
    [
      "a key",
      "[slots]\nmain = 0\nbackground = 2\nmain = 1\n",
      "loopd.toml:4: this key stands twice, first on line 2; keep one of them",
    ],
  ]
) {
  Deno.test(`K1 ${what} written twice is said to stand twice, and where it stood first`, () =>
    withHome({ loopd }, (paths) => assertEquals(faultTexts(loadLoopdConfig(paths), paths.home), [wanted])));
}

Deno.test("K1 the same key in two tables, and a list of tables, are no repetition", () =>
  withHome({
    grants:
      '[[grant]]\ntool = "consult"\nmax_taint = "private"\n[[grant]]\ntool = "consult"\nmax_taint = "public"\n',
  }, (paths) => assertEquals(faultTexts(loadGrants(paths), paths.home), [])));

Deno.test("F34 an absent loopd.toml says what writes one; absent brokerd.toml and grants.toml configure nothing", () =>
  withHome({}, (paths) => {
    assertEquals(faultTexts(loadLoopdConfig(paths), paths.home), [
      "loopd.toml: does not exist; `deno task init` writes one and leaves the other files as they are",
    ]);
    const brokerd = loadBrokerdConfig(paths);
    assertEquals("value" in brokerd && brokerd.value.consult, undefined);
    const grants = loadGrants(paths);
    assertEquals("value" in grants && { ...grants }, {
      value: [],
      bytes: new Uint8Array(),
    });
  }));

Deno.test("K1 a file of the largest size is read, one byte more is refused", async () => {
  const padded = (bytes: number) => "#".padEnd(bytes - 1, "x") + "\n";
  await withHome({ loopd: padded(configFileBytesMax) }, (paths) => {
    assertEquals(faultTexts(loadLoopdConfig(paths), paths.home), []);
  });
  await withHome({ loopd: padded(configFileBytesMax + 1) }, (paths) => {
    assertEquals(faultTexts(loadLoopdConfig(paths), paths.home), [
      "loopd.toml: is larger than 1048576 bytes",
    ]);
  });
});

Deno.test("K1 bytes that are no UTF-8 are refused, a mark at the beginning is not", async () => {
  await withHome({}, async (paths) => {
    await Deno.writeFile(paths.loopdToml, new Uint8Array([0x23, 0xff, 0x0a]));
    assertEquals(faultTexts(loadLoopdConfig(paths), paths.home), [
      "loopd.toml: is not UTF-8 text; save it as UTF-8",
    ]);
    await Deno.writeTextFile(paths.loopdToml, "\ufeff[slots]\nmain = 0\n");
    assertEquals(faultTexts(loadLoopdConfig(paths), paths.home), []);
  });
});

Deno.test("K1 lines are found through comments, dotted and quoted keys, strings of four kinds, inline tables and nested arrays of tables", () => {
  const lines = keyLines([
    '# [not] = "a header"', // 1
    'a.b."c d" = 1', // 2
    'text = """', // 3
    '[fake]\nkey = "no"', // 4, 5
    '""" # end', // 6
    "literal = 'x # [y]'", // 7
    "list = [ # one", // 8
    "  { k = 1 },", // 9
    "  { k = [1,", // 10
    "    2] },", // 11
    "]", // 12
    "[[fruit]]", // 13
    'name = "a\\"b"', // 14
    "[[fruit.sort]]", // 15
    "x = 1", // 16
    "[[fruit]]", // 17
    "[[fruit.sort]]", // 18
    "[[fruit.sort]]", // 19
    "  x = 2", // 20
    "[ table . sub ]", // 21
    "y = {z = {w = '''", // 22
    "'''}}", // 23
    "last = 1979-05-27", // 24
  ].join("\n"));
  const wanted = {
    'a.b."c d"': 2,
    text: 3,
    literal: 7,
    "list[1].k": 9,
    "list[2].k": 10,
    "list[2].k[2]": 11,
    "fruit[1].name": 14,
    "fruit[1].sort[1].x": 16,
    "fruit[2].sort[2].x": 20,
    "table.sub": 21,
    "table.sub.y.z.w": 22,
    "table.sub.last": 24,
  };
  for (const [path, line] of Object.entries(wanted)) assertEquals([path, lines.get(path)], [path, line]);
  assertEquals(lines.has("fake"), false);
});
