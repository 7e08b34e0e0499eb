// What each key of the three files accepts, at its bounds and one past, and what it is mapped to.

import { assertEquals, assertStringIncludes } from "@std/assert";
import { hostAndPort } from "../../../core/config/address.ts";
import { loadBrokerdConfig } from "../../../core/config/brokerd_toml.ts";
import { crossFaults } from "../../../core/config/cross.ts";
import { loadGrants } from "../../../core/config/grants_toml.ts";
import { loadLoopdConfig } from "../../../core/config/loopd_toml.ts";
import type { TomlResult } from "../../../core/config/toml_file.ts";
import { describeFault } from "../../../core/errors.ts";
import { withHome } from "./home_dir.ts";

function valueOf<T>(result: TomlResult<T>): T {
  if ("faults" in result) throw new Error(result.faults.map(describeFault).join("\n"));
  return result.value;
}

interface Case {
  readonly file: "loopd" | "brokerd" | "grants";
  readonly accepted: readonly string[];
  readonly refused: readonly string[];
  /** Stands in each refusal. */
  readonly because: string;
}

const loaders = { loopd: loadLoopdConfig, brokerd: loadBrokerdConfig, grants: loadGrants };

/** Each accepted text has no fault, each refused one exactly one. */
async function check({ file, accepted, refused, because }: Case): Promise<void> {
  for (const text of accepted) {
    await withHome({ [file]: text }, (paths) => void valueOf<unknown>(loaders[file](paths)));
  }
  for (const text of refused) {
    await withHome({ [file]: text }, (paths) => {
      const result = loaders[file](paths);
      const faults = "faults" in result ? result.faults : [];
      assertEquals(faults.length, 1, `${text}\n${faults.map(describeFault).join("\n")}`);
      assertStringIncludes(describeFault(faults[0]), because);
    });
  }
}

const consult = (line: string) =>
  `[consult]\nurl = "https://api.example.com/v1/chat/completions"\nmodel = "m"\nsecret = "consult"\n${line}\n`;
const consultUrl = (url: string) => `[consult]\nurl = "${url}"\nmodel = "m"\nsecret = "consult"\n`;
const inferenceUrl = (url: string, more = "") => `[inference]\nurl = "${url}"\n${more}`;
const grant = (line: string) => `[[grant]]\ntool = "consult"\nmax_taint = "private"\n${line}\n`;
const cron = (line: string) => `[[cron]]\nname = "morning"\nschedule = "0 7 * * *"\ntask = "x"\n${line}`;

const cases: { readonly [claim: string]: Case } = {
  "C3 a temperature of 0.61 is refused, 0.6 is accepted": {
    file: "brokerd",
    accepted: [consult("temperature = 0.6"), consult("temperature = 0")],
    refused: [consult("temperature = 0.61"), consult("temperature = -0.1"), consult("temperature = nan")],
    because: "consult.temperature: wanted a number from 0 to 0.6; found ",
  },
  "C9 a consult timeout is an integer from 1 to 3600000 milliseconds": {
    file: "brokerd",
    accepted: [consult("timeout_ms = 1"), consult("timeout_ms = 3600000")],
    refused: [consult("timeout_ms = 0"), consult("timeout_ms = 3600001"), consult("timeout_ms = 1.5")],
    because: "consult.timeout_ms: wanted an integer from 1 to 3600000 (milliseconds); found ",
  },
  "C4 a consult goes to https, or to http on this device": {
    file: "brokerd",
    accepted: [
      consultUrl("https://api.example.com/v1/chat/completions"),
      consultUrl("https://api.example.com/v1?api-version=3"),
      consultUrl("http://127.0.0.1:9000/v1"),
      consultUrl("http://[::1]:9000/"),
      consultUrl("http://localhost/"),
    ],
    refused: [
      consultUrl("http://api.example.com/v1"),
      consultUrl("http://127.0.0.1.example.com/"),
      consultUrl("http://0.0.0.0:9000/"),
      consultUrl("https://user@api.example.com/"),
      consultUrl("https://:@api.example.com/"),
      consultUrl("https://api.example.com/#x"),
      consultUrl("file:///etc/passwd"),
      consultUrl("api.example.com"),
      consultUrl("https://api.example.com,127.0.0.1:8080/"),
      consultUrl("https://*.example.com/"),
    ],
    because: "consult.url: wanted an https address, or an http one of this device",
  },
  "C4 a secret is named, not written": {
    file: "brokerd",
    accepted: [
      consult("").replace('"consult"', '"glm_key-2"'),
      consult("").replace('"consult"', `"${"k".repeat(64)}"`),
    ],
    refused: [
      consult("").replace('"consult"', '"../consult"'),
      consult("").replace('"consult"', `"${"k".repeat(65)}"`),
      consult("").replace('"consult"', '""'),
    ],
    because: "consult.secret: wanted the name of a file in secrets/",
  },
  "B10 approvals expire after more than no time": {
    file: "brokerd",
    accepted: ["[approvals]\nexpire_minutes = 0.05\n", "[approvals]\nexpire_minutes = 43200\n"],
    refused: ["[approvals]\nexpire_minutes = 0\n", "[approvals]\nexpire_minutes = 43201\n"],
    because: "approvals.expire_minutes: wanted a number above 0, at most 43200 (minutes); found ",
  },
  "inference stays on this device unless remote = true": {
    file: "loopd",
    accepted: [
      inferenceUrl("http://127.0.0.1:8080"),
      inferenceUrl("http://[::1]:8080/base/"),
      inferenceUrl("http://192.168.1.5:8080", "remote = true"),
      inferenceUrl("https://models.example.net", "remote = true"),
    ],
    refused: [
      inferenceUrl("http://192.168.1.5:8080"),
      inferenceUrl("https://models.example.net", "remote = false"),
    ],
    because:
      "inference.url: this host is not this device, and everything the model reads would go to it; write remote = true",
  },
  "an inference address hides nothing": {
    file: "loopd",
    accepted: [inferenceUrl("http://127.0.0.1:8080/v1")],
    refused: [
      inferenceUrl("http://user:word@127.0.0.1:8080"),
      inferenceUrl("http://127.0.0.1:8080/?a=b"),
      inferenceUrl("http://127.0.0.1:8080/#x"),
      inferenceUrl("unix:///run/model.sock"),
    ],
    because: "inference.url: wanted an address such as http://127.0.0.1:8080",
  },
  "B4 the two slots differ and are integers from 0": {
    file: "loopd",
    accepted: ["[slots]\nmain = 2\nbackground = 0\n", "[slots]\nmain = 1\n"],
    refused: ["[slots]\nmain = 2\n", "[slots]\nbackground = 0\n"],
    because: "slots.background: is the same slot as slots.main",
  },
  "B4 a slot is no negative number": {
    file: "loopd",
    accepted: ["slots.main = 0\n"],
    refused: ["slots.main = -1\n", "slots.main = 0.5\n", "slots.main = true\n"],
    because: "slots.main: wanted an integer from 0 to 1023; found ",
  },
  "B5 a schedule has five or six fields and comes due": {
    file: "loopd",
    accepted: [cron(""), cron("").replace("0 7 * * *", "*/2 0 7 * * 1-5")],
    refused: ["@daily", "0 7 * *", "0 7 * * * * 2030", "60 7 * * *", "0 0 30 2 *", ""].map((schedule) =>
      cron("").replace("0 7 * * *", schedule)
    ),
    because: "cron[1].schedule: wanted a schedule of five fields",
  },
  "B13 a cron name makes a session id of at most 64 characters": {
    file: "loopd",
    accepted: [cron("").replace("morning", "m".repeat(60))],
    refused: [cron("").replace("morning", "m".repeat(61)), cron("").replace("morning", "a_b")],
    because: "cron[1].name: wanted a name of a-z, 0-9 and -, 1 to 60 characters; found ",
  },
  "B5 two cron entries have two names": {
    file: "loopd",
    accepted: [cron("") + cron("").replace("morning", "evening")],
    refused: [cron("") + cron("")],
    because: 'cron[2].name: "morning" is the name of cron[1] already; each job has its own session',
  },
  "B5 a heartbeat comes after more than no time, fractions of a minute too": {
    file: "loopd",
    accepted: ["[heartbeat]\nevery_minutes = 0.02\nprompt = 'x'\n"],
    refused: ["[heartbeat]\nevery_minutes = 0\nprompt = 'x'\n", "[heartbeat]\nprompt = 'x'\n"],
    because: "heartbeat.every_minutes: ",
  },
  "a time zone is one that Intl knows": {
    file: "loopd",
    accepted: ["Europe/Berlin", "UTC", "Etc/GMT+1", "+05:30"].map((zone) => `clock.time_zone = '${zone}'\n`),
    refused: ["Europe/Nowhere", "", "2026-01-01T00:00[UTC]", "12:00Z"].map((zone) =>
      `clock.time_zone = '${zone}'\n`
    ),
    because: 'clock.time_zone: wanted a time zone such as "Europe/Berlin"; found ',
  },
  "B7 a max_taint is one of the classes": {
    file: "grants",
    accepted: ["public", "private", "secret"].map((name) => grant("").replace("private", name)),
    refused: [grant("").replace("private", "top"), '[[grant]]\ntool = "consult"\n'],
    because: "grant[1].max_taint: ",
  },
  "B7 per_day is an integer from 1": {
    file: "grants",
    accepted: [grant("per_day = 1")],
    refused: [grant("per_day = 0"), grant("per_day = 2.5")],
    because: "grant[1].per_day: wanted an integer from 1 to 1000000 (calls a day); found ",
  },
  "B7 session patterns have one wildcard": {
    file: "grants",
    accepted: [grant('sessions = ["chat-*", "*", "heartbeat"]')],
    refused: [grant('sessions = ["chat-?"]'), grant('sessions = ["Chat"]'), grant('sessions = [""]')],
    because: "grant[1].sessions[1]: wanted a session id in which * stands for any characters",
  },
  "B7 an empty list of session patterns is refused": {
    file: "grants",
    accepted: [grant("")],
    refused: [grant("sessions = []")],
    because:
      'grant[1].sessions: wanted at least one session pattern; leave the key out for all, that is ["*"]',
  },
};

for (const [claim, data] of Object.entries(cases)) Deno.test(claim, () => check(data));

Deno.test("S16 an empty loopd.toml has the pinned defaults and no inference server", () =>
  withHome({ loopd: "" }, (paths) => {
    assertEquals(valueOf(loadLoopdConfig(paths)), {
      inference: undefined,
      slots: { main: 0, background: 2 },
      session: { class: "private", toolIterations: 16, resumeHours: 24 },
      tools: { resultChars: 16_000 },
      compact: { thresholdTokens: 24_000, summaryChars: 4_000 },
      broker: { timeoutMs: 200_000 },
      clock: { timeZone: undefined },
      heartbeat: undefined,
      cron: [],
      trace: { enabled: false },
    });
  }));

Deno.test("a url in the file wins over the launcher's, which stands in where there is none", async () => {
  const practice = { inferenceUrl: "http://127.0.0.1:4242" };
  const settings = {
    remote: false,
    model: "local",
    secretName: undefined,
    livenessMs: 120_000,
    maxTokens: 8_192,
    temperature: undefined,
    history: "auto" as const,
  };
  await withHome({ loopd: "" }, (paths) => {
    assertEquals(valueOf(loadLoopdConfig(paths, practice)).inference, {
      url: "http://127.0.0.1:4242",
      ...settings,
    });
  });
  await withHome({ loopd: inferenceUrl("http://127.0.0.1:8080/base/v1/") }, (paths) => {
    assertEquals(valueOf(loadLoopdConfig(paths, practice)).inference, {
      url: "http://127.0.0.1:8080/base",
      ...settings,
    });
  });
});

Deno.test("a time zone in the file wins over the launcher's, which stands in where there is none", async () => {
  for (
    const [loopd, wanted] of [["", "Asia/Tokyo"], ["clock.time_zone = 'Europe/Berlin'\n", "Europe/Berlin"]]
  ) {
    await withHome({ loopd }, (paths) => {
      assertEquals(valueOf(loadLoopdConfig(paths, { timeZone: "Asia/Tokyo" })).clock.timeZone, wanted);
    });
  }
});

Deno.test("C4 [consult] is mapped with its defaults, and is absent where the owner wrote none", async () => {
  await withHome({ brokerd: consult("") }, (paths) => {
    assertEquals(valueOf(loadBrokerdConfig(paths)), {
      consult: {
        url: "https://api.example.com/v1/chat/completions",
        model: "m",
        temperature: 0.6,
        timeoutMs: 180_000,
        secretName: "consult",
        replyBytesMax: 1_048_576,
      },
      approvals: { expireMinutes: 60 },
      honcho: undefined,
    });
  });
  await withHome({ brokerd: "" }, (paths) => {
    assertEquals(valueOf(loadBrokerdConfig(paths)).consult, undefined);
  });
});

Deno.test("B7 grants keep the file's order and number it from 1, with their defaults", () =>
  withHome({
    grants: grant("") +
      grant('mode = "ask"\nallow_untrusted = true\nuntrusted = false\nresult_class = "public"'),
  }, (paths) => {
    const defaults = {
      index: 1,
      tool: "consult",
      maxTaint: "private",
      resultClass: "private",
      untrusted: true,
      allowUntrusted: false,
      mode: "allow",
      perDay: undefined,
      sessions: ["*"],
    };
    assertEquals(valueOf<unknown>(loadGrants(paths)), [
      defaults,
      { ...defaults, index: 2, mode: "ask", allowUntrusted: true, untrusted: false, resultClass: "public" },
    ]);
  }));

Deno.test("C9 a broker timeout one below the consult's is one fault naming both settings, an equal one none", async () => {
  for (const [brokerMs, faultCount] of [[179_999, 1], [180_000, 0]]) {
    await withHome({ loopd: `\n[broker]\ntimeout_ms = ${brokerMs}\n`, brokerd: consult("") }, (paths) => {
      const faults = crossFaults(valueOf(loadLoopdConfig(paths)), valueOf(loadBrokerdConfig(paths)), paths);
      assertEquals(faults.length, faultCount);
      if (faultCount === 0) return;
      assertStringIncludes(
        describeFault(faults[0]),
        "loopd.toml:3: broker.timeout_ms: [broker] timeout_ms = 179999",
      );
      assertStringIncludes(faults[0].text, "[consult] timeout_ms = 180000");
      assertEquals(faults[0].runbook, "broker-timeout");
    });
  }
});

Deno.test("C9 no [consult], no quarrel about timeouts", () =>
  withHome({ loopd: "[broker]\ntimeout_ms = 1\n", brokerd: "" }, (paths) => {
    assertEquals(crossFaults(valueOf(loadLoopdConfig(paths)), valueOf(loadBrokerdConfig(paths)), paths), []);
  }));

Deno.test("a network grant names IPv6 in brackets and the scheme's own port", () => {
  const wanted = {
    "https://api.example.com/v1": "api.example.com:443",
    "http://localhost/": "localhost:80",
    "http://[::1]:9000/x": "[::1]:9000",
    "https://[2001:db8::1]/": "[2001:db8::1]:443",
  };
  for (const [address, grantText] of Object.entries(wanted)) assertEquals(hostAndPort(address), grantText);
});
