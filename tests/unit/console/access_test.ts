// Who is let in, and which requests are held to come from elsewhere.

import { assertEquals, assertMatch, assertNotEquals } from "@std/assert";
import { Access } from "../../../tools/console/access.ts";

function keyOf(address: string): string {
  return new URL(address).searchParams.get("key") ?? "";
}

function cookieOf(header: string | undefined): string {
  return /=([^;]+)/.exec(header ?? "")?.[1] ?? "";
}

Deno.test("a printed key lets in once, each its own viewer; a key never printed lets nobody in", () => {
  const access = new Access(4870);
  const [first, second] = [access.newAddress(), access.newAddress()];
  assertMatch(first, /^http:\/\/127\.0\.0\.1:4870\/enter\?key=[\w-]{43}$/);
  const cookie = access.enter(keyOf(first));
  assertMatch(
    cookie ?? "",
    /^boxmaker-console-4870=[\w-]{43}; Path=\/[a-z0-9]{12}; HttpOnly; SameSite=Strict$/,
  );
  assertEquals(access.enter(keyOf(first)), undefined);
  assertEquals(access.enter(""), undefined);
  const other = access.viewer(cookieOf(access.enter(keyOf(second))));
  const viewer = access.viewer(cookieOf(cookie));
  assertNotEquals(viewer?.formKey, other?.formKey);
  assertEquals([access.viewer(undefined), access.viewer(""), access.viewer("x")], [
    undefined,
    undefined,
    undefined,
  ]);
  assertEquals(viewer && access.isFormKey(viewer, viewer.formKey), true);
  assertEquals(viewer && access.isFormKey(viewer, other?.formKey ?? ""), false);
});

Deno.test("of keys that wait the last four are good, of viewers the last sixteen", () => {
  const access = new Access(1);
  const addresses = Array.from({ length: 5 }, () => access.newAddress());
  assertEquals(addresses.map((address) => access.enter(keyOf(address)) !== undefined), [
    false,
    true,
    true,
    true,
    true,
  ]);
  const cookies = Array.from({ length: 17 }, () => cookieOf(access.enter(keyOf(access.newAddress()))));
  assertEquals(cookies.map((cookie) => access.viewer(cookie) !== undefined), [
    false,
    ...Array(16).fill(true),
  ]);
});

Deno.test("a request is held against its host, its method, its origin and where the browser says it comes from", () => {
  const access = new Access(4870);
  const refusal = (headers: Record<string, string>, { method = "GET", entering = false } = {}) =>
    access.refusal(new Request("http://any/", { method, headers: { host: "127.0.0.1:4870", ...headers } }), {
      entering,
    })
      ?.status;
  const origin = "http://127.0.0.1:4870";
  const cases: [Parameters<typeof refusal>, number | undefined][] = [
    [[{}], undefined],
    [[{ origin }], undefined],
    [[{ "sec-fetch-site": "same-origin" }], undefined],
    [[{ "sec-fetch-site": "none" }], undefined],
    [[{ host: "127.0.0.1" }], 421],
    [[{ host: "localhost:4870" }], 421],
    [[{ host: "127.0.0.1:4871" }], 421],
    [[{ host: "127.0.0.1:4870.elsewhere.test" }], 421],
    [[{ origin: "http://localhost:4870" }], 403],
    [[{ origin: "https://127.0.0.1:4870" }], 403],
    [[{ origin: "null" }], 403],
    [[{ "sec-fetch-site": "same-site" }], 403],
    [[{ "sec-fetch-site": "cross-site" }], 403],
    [[{ "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate" }], 403],
    [[{ "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate" }, { entering: true }], undefined],
    [[{ "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors" }, { entering: true }], 403],
    [[{ origin }, { method: "POST" }], undefined],
    [[{}, { method: "POST" }], 403],
    [[{ origin: "null" }, { method: "POST" }], 403],
    [[{ origin, "sec-fetch-site": "same-site" }, { method: "POST" }], 403],
    [[{}, { method: "DELETE" }], 405],
    [[{}, { method: "HEAD" }], 405],
  ];
  for (const [given, wanted] of cases) assertEquals([given, refusal(...given)], [given, wanted]);
});
