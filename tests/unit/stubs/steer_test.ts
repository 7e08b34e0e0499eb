// The relay that forces a test model's steps: what it forces it tells as the server would, what it lets through is the same bytes, and the
// prompt that the server sees is the one without it.

import { assertEquals, assertStringIncludes } from "@std/assert";
import { parseJsonObject } from "../../../core/json.ts";
import { replyOf, wishOf } from "../../../tools/device_check/request_text.ts";
import { requestText, throughCallTool, triesMax } from "../../../tools/device_check/request_text.ts";
import { type ModelStub, startModelStub } from "../../../tools/stubs/model.ts";
import { startSteer, type Wish } from "../../../tools/stubs/steer.ts";

const tools = ["recall", "call_tool"].map((name) => ({
  type: "function",
  function: { name, description: "A tool.", parameters: { type: "object", properties: {} } },
}));
const wanted = throughCallTool("subagent", { task: 'say "two"\nand – two ‹b› \\ done' });
const body = {
  model: "local",
  stream: true,
  stream_options: { include_usage: true },
  id_slot: 2,
  cache_prompt: true,
  return_progress: true,
  messages: [{ role: "system", content: "You are an agent." }, {
    role: "user",
    content: requestText(wanted, 1),
  }],
  tools,
};

/** A model that heeds the grammar: it writes the wished call, which stays text where `tool_choice` is none. */
function startObedient(options: { apiKey?: string } = {}): Promise<ModelStub> {
  return startModelStub({ ...options, script: ({ messages }) => replyOf(wishOf(messages)) });
}

async function post(url: string, sent: unknown, headers: Record<string, string> = {}) {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(sent),
  });
  const text = await response.text();
  const events = text.split("\n\n").filter((event) => event.startsWith("data: ")).map((event) =>
    event.slice(6)
  );
  return { status: response.status, text, events };
}

/** What a stream says, put together as a client does. */
function read(events: readonly string[]) {
  let content = "";
  let name = "";
  let args = "";
  let finish: string | undefined;
  for (const event of events.slice(0, -1).map(parseJsonObject)) {
    const choice = (event?.choices as { delta: Delta; finish_reason?: string }[])[0];
    if (choice === undefined) continue;
    content += choice.delta.content ?? "";
    name += choice.delta.tool_calls?.[0].function.name ?? "";
    args += choice.delta.tool_calls?.[0].function.arguments ?? "";
    finish = choice.finish_reason ?? finish;
  }
  return { content, name, args, finish, done: events.at(-1) };
}

interface Delta {
  content?: string | null;
  tool_calls?: { function: { name?: string; arguments: string } }[];
}

Deno.test("D1 a forced call is told as the server tells one it parsed itself, from a request whose prompt is unchanged", async () => {
  await using model = await startObedient();
  await using relay = await startSteer({ target: model.url, wish: wishOf });
  const direct = await post(model.url, body);
  const forced = await post(relay.url, body);
  const [plain, steered] = model.requests;
  assertEquals(steered.prompt, plain.prompt);
  assertEquals([steered.body?.tool_choice, steered.slot, relay.steered], ["none", 2, 1]);
  assertStringIncludes(String(steered.body?.grammar), '\\"subagent\\"');
  assertEquals(read(forced.events), read(direct.events));
  assertEquals(read(forced.events).finish, "tool_calls");
  assertEquals(JSON.parse(read(forced.events).args), wanted.arguments);
  // The counts of the server stand where they stood.
  const timings = forced.events.flatMap((event) => parseJsonObject(event)?.timings ?? []);
  assertEquals(
    timings.length,
    direct.events.flatMap((event) => parseJsonObject(event)?.timings ?? []).length,
  );
});

Deno.test("D1 a client that reads calls out of the text itself gets the forced call as text, and its own grammar is replaced", async () => {
  await using model = await startObedient();
  await using relay = await startSteer({ target: model.url, wish: wishOf });
  const { events } = await post(relay.url, { ...body, tool_choice: "none", grammar: 'root ::= "x"' });
  assertEquals(
    read(events).content,
    `<tool_call>\n{"name": "call_tool", "arguments": ${
      read((await post(model.url, body)).events).args
    }}\n</tool_call>`,
  );
  assertEquals(read(events).finish, "stop");
});

Deno.test("D1 a forced text comes through as it is; a model that heeds no grammar is not made to have called", async () => {
  await using model = await startModelStub({ script: () => ({ content: "whatever I like" }) });
  let wish: Wish = { say: "done" };
  await using relay = await startSteer({ target: model.url, wish: () => wish });
  for (const next of [{ say: "done" }, { call: wanted }]) {
    wish = next;
    const { content, name, finish } = read((await post(relay.url, body)).events);
    assertEquals([content, name, finish], ["whatever I like", "", "stop"]);
  }
  assertEquals(model.requests[0].body?.grammar, 'root ::= "done"');
});

Deno.test("D1 what is not steered goes through byte for byte, on one kept connection or several: bodies, answers, refusals", async () => {
  await using model = await startObedient({ apiKey: "sk-test" });
  await using relay = await startSteer({ target: `${model.url}/`, wish: () => undefined });
  const headers = { authorization: "Bearer sk-test", "x-odd": "kept" };
  for (const path of ["/props", "/slots", "/health", "/nowhere"]) {
    const [direct, through] = await Promise.all([model.url, relay.url].map(async (url) => {
      const response = await fetch(url + path, { headers });
      return [response.status, response.headers.get("content-type"), await response.text()];
    }));
    assertEquals(through, direct);
  }
  const odd = JSON.stringify({
    ...body,
    stream: false,
    messages: [{ role: "user", content: "é\u2028🍞\\" }],
  });
  const sent = await fetch(`${relay.url}/v1/chat/completions`, { method: "POST", headers, body: odd });
  assertEquals(sent.status, 200);
  await sent.body?.cancel();
  assertEquals(new TextDecoder().decode(model.requests[0].bytes), odd);
  assertEquals(model.requests[0].headers.find(([name]) => name === "x-odd"), ["x-odd", "kept"]);
  assertEquals((await post(relay.url, body)).status, 401);
  assertEquals(relay.steered, 0);
});

Deno.test("D1 a forced request carries the client's key, is refused without it, and ends at the server when the client leaves", async () => {
  const { promise: never } = Promise.withResolvers<void>();
  await using model = await startModelStub({
    apiKey: "sk-test",
    script: () => ({ content: "…", hold: never }),
  });
  await using relay = await startSteer({ target: model.url, wish: wishOf });
  assertEquals((await post(relay.url, body)).status, 401);
  const leaving = new AbortController();
  const left = fetch(`${relay.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: "Bearer sk-test" },
    body: JSON.stringify(body),
    signal: leaving.signal,
  }).then((response) => response.text()).catch((error) => error.name);
  await model.waitFor(({ state }) => state === "running");
  leaving.abort();
  assertEquals(await left, "AbortError");
  await model.waitFor(({ state }) => state === "aborted");
});

Deno.test("D1 a server that is not there ends the client's connection, forced or not", async () => {
  const model = await startObedient();
  await model.close();
  await using relay = await startSteer({ target: model.url, wish: wishOf });
  for (const path of ["/props", "/v1/chat/completions"]) {
    const init = path === "/props" ? {} : { method: "POST", body: JSON.stringify(body) };
    assertEquals(await fetch(relay.url + path, init).then(() => "answered", () => "ended"), "ended");
  }
});

Deno.test("D1 D2 a wish is read back from each of the texts that ask for it, and from nothing else", () => {
  const user = (content: string) => [{ role: "user", content }];
  for (let attempt = 1; attempt <= triesMax; attempt++) {
    assertEquals(wishOf(user(requestText(wanted, attempt))), { call: { ...wanted } });
  }
  assertEquals(wishOf(user("Call the tool recall now, please.")), { say: "done" });
  assertEquals(wishOf([...user(requestText(wanted, 1)), { role: "tool", content: requestText(wanted, 1) }]), {
    say: "The result is there.",
  });
});
