// The floor: the least that an agent with a durable log can do. Ask, parse the stream, append each record with fdatasync, answer the call, ask
// again. No labels, no broker, no tools but the clock, no recovery. Each line of standard input names a log: what it holds is read, one
// user message is added, and the conversation runs to an answer without a call.

import { linesOf } from "./lines.ts";

const url = Deno.args[0];
const tools = [{
  type: "function",
  function: { name: "clock", parameters: { type: "object", properties: {} } },
}];
const encoder = new TextEncoder();

async function converse(path: string): Promise<void> {
  using log = await Deno.open(path, { append: true, read: true, create: true });
  const lines = (await Deno.readTextFile(path)).split("\n").slice(0, -1);
  const messages = lines.map((line) => JSON.parse(line));
  const keep = async (message: unknown) => {
    messages.push(message);
    await log.write(encoder.encode(JSON.stringify(message) + "\n"));
    await log.syncData();
  };
  await keep({ role: "user", content: "What time is it?" });
  for (;;) {
    const body = JSON.stringify({ model: "local", stream: true, id_slot: 0, tools, messages });
    const response = await fetch(`${url}/v1/chat/completions`, { method: "POST", body });
    const said = { role: "assistant", content: "", calls: [] as { name: string; arguments: string }[] };
    let pending = "";
    for await (const text of response.body!.pipeThrough(new TextDecoderStream())) {
      const events = (pending + text).split("\n\n");
      pending = events.pop()!;
      for (const event of events) {
        if (event === "data: [DONE]") continue;
        const { content, tool_calls: calls } = JSON.parse(event.slice(6)).choices[0].delta;
        if (content) said.content += content;
        for (const { index, function: part } of calls ?? []) {
          const call = said.calls[index] ??= { name: "", arguments: "" };
          call.name += part.name ?? "";
          call.arguments += part.arguments ?? "";
        }
      }
    }
    await keep(said);
    if (said.calls.length === 0) return;
    for (const { name } of said.calls) await keep({ role: "tool", name, content: new Date().toISOString() });
  }
}

for await (const path of linesOf(Deno.stdin.readable)) {
  await converse(path);
  console.log("answered");
}
