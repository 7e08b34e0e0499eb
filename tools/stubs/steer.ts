// A relay on loopback between loopd and a real model server, for models too small to follow words. Where the caller wishes a step to
// go one way, it forces exactly that call or that text by a grammar, which leaves the prompt and so the prompt cache unchanged (facts 3d).
// Owns: which requests are forced, and how a forced call is told. Everything else goes through byte for byte, both ways. It never
// answers in the server's place.

import net from "node:net";
import tls from "node:tls";
import { socketAddress } from "../../core/config/address.ts";
import { isJsonObject, type JsonObject, parseJsonObject } from "../../core/json.ts";
import { eventStreamParser } from "../../core/wire/event_stream.ts";
import { HttpResponse } from "./model_http.ts";
import { callFrame, type ChatMessage, dumpJson } from "./model_template.ts";
import { type Connection, headerOf, listen, type RawHead, WireError } from "./wire.ts";

const requestsPerConnectionMax = 1_000;

/** What the model is to do next: one call, or one text. */
export type Wish =
  | { readonly call: { readonly name: string; readonly arguments: Readonly<JsonObject> } }
  | { readonly say: string };

export interface SteerOptions {
  /** The server's base address, as `[inference] url` has it. */
  readonly target: string;
  /** `undefined` lets the request through as it is. */
  readonly wish: (messages: readonly ChatMessage[]) => Wish | undefined;
}

export interface Steer extends AsyncDisposable {
  /** The address that stands for the target's. */
  readonly url: string;
  /** Requests that were forced so far. */
  readonly steered: number;
}

export async function startSteer({ target, wish }: SteerOptions): Promise<Steer> {
  const relay = new Relay(new URL(target), wish);
  const listener = await listen(
    { hostname: "127.0.0.1", port: 0 },
    (connection) => relay.serve(connection),
  );
  return {
    url: `http://127.0.0.1:${listener.port}${relay.target.pathname.replace(/\/+$/, "")}`,
    get steered() {
      return relay.steered;
    },
    async [Symbol.asyncDispose]() {
      await listener.close();
      relay.close();
    },
  };
}

class Relay {
  steered = 0;
  #tagsAreTokens: Promise<boolean> | undefined;
  readonly #client = Deno.createHttpClient({ http2: false, poolMaxIdlePerHost: 0 });

  constructor(readonly target: URL, readonly wish: SteerOptions["wish"]) {}

  /** Requests of one connection go to one connection of the server's; a forced one is answered here and is the last. */
  async serve(connection: Connection): Promise<void> {
    let through: net.Socket | undefined;
    try {
      for (let count = 1; count <= requestsPerConnectionMax; count++) {
        const head = await connection.readHead();
        if (head === undefined) return;
        const body = await connection.readBody(head);
        if (!body.complete) return;
        const forced = this.#forced(head, body.content);
        if (forced !== undefined) {
          this.steered++;
          // A server that breaks off, or a client that leaves: the other side hears of it by the end of the connection.
          return await this.#force(forced, head, connection).catch(() => connection.destroy());
        }
        through ??= await openThrough(this.target, connection);
        through.write(head.bytes);
        through.write(body.wire);
      }
    } finally {
      through?.destroy();
    }
  }

  close(): void {
    this.#client.close();
  }

  #forced(head: RawHead, bytes: Uint8Array): { body: JsonObject; wish: Wish } | undefined {
    if (head.method !== "POST" || !head.target.endsWith("/chat/completions")) return undefined;
    const body = parseJsonObject(new TextDecoder().decode(bytes));
    if (body?.stream !== true || !Array.isArray(body.messages)) return undefined;
    const wish = this.wish(body.messages);
    return wish === undefined ? undefined : { body, wish };
  }

  async #force(
    { body, wish }: { body: JsonObject; wish: Wish },
    head: RawHead,
    connection: Connection,
  ): Promise<void> {
    const text = "say" in wish ? wish.say : rawCall(wish.call);
    const authorization = headerOf(head, "authorization");
    const headers = {
      "content-type": "application/json",
      ...(authorization === undefined ? {} : { authorization }),
    };
    const grammar = grammarOf(text, await (this.#tagsAreTokens ??= this.#askTags(headers)));
    const reply = await fetch(new URL(head.target, this.target), {
      method: "POST",
      headers,
      body: JSON.stringify({ ...body, tool_choice: "none", grammar }),
      redirect: "manual",
      signal: connection.gone,
      client: this.#client,
    });
    const response = new HttpResponse(connection, false);
    if (!reply.ok || reply.body === null) {
      const type = reply.headers.get("content-type") ?? "text/plain";
      return await response.body(reply.status, await reply.text(), { "content-type": type });
    }
    // A client that asked for "none" reads calls out of the text itself.
    const told = "call" in wish && body.tool_choice !== "none" ? new ToldCall(wish.call, text) : undefined;
    await response.startEvents();
    const parser = eventStreamParser();
    for await (const bytes of reply.body) {
      for (const { data } of parser.push(bytes)) {
        for (const event of told?.events(data) ?? [data]) await response.event(event);
      }
      await response.flush();
    }
    await response.finishEvents();
  }

  /** Whether the tags of a call are tokens of their own: spelt out in pieces they would be read back as those, and computed again. */
  async #askTags(headers: Record<string, string>): Promise<boolean> {
    const counts = await Promise.all(tags.map(async (content) => {
      const answer = await fetch(
        new URL(`${this.target.pathname.replace(/\/+$/, "")}/tokenize`, this.target),
        {
          method: "POST",
          headers,
          body: JSON.stringify({ content }),
          redirect: "manual",
          client: this.#client,
        },
      );
      const tokens = parseJsonObject(await answer.text())?.tokens;
      return Array.isArray(tokens) ? tokens.length : undefined;
    }));
    return counts.every((count) => count === 1);
  }
}

/** The stream of a forced call as the server tells one that it parsed itself: the text is held back, the call stands in its place. */
class ToldCall {
  #text = "";

  constructor(readonly call: { name: string; arguments: Readonly<JsonObject> }, readonly expected: string) {}

  events(data: string): string[] {
    const event = parseJsonObject(data);
    const choice = Array.isArray(event?.choices) ? event.choices[0] : undefined;
    if (!isJsonObject(choice)) return [data];
    const delta = isJsonObject(choice.delta) ? choice.delta : {};
    if (typeof delta.content === "string") this.#text += delta.content;
    const told = (change: JsonObject) =>
      JSON.stringify({ ...event, timings: undefined, usage: undefined, choices: [{ ...choice, ...change }] });
    if (typeof choice.finish_reason !== "string") return typeof delta.content === "string" ? [] : [data];
    // Cut short, or a server that pays no heed to grammars: the client reads what was said.
    if (this.#text !== this.expected) {
      return [told({ finish_reason: null, delta: { content: this.#text } }), data];
    }
    const text = dumpJson(this.call.arguments);
    const part = (piece: JsonObject) =>
      told({ finish_reason: null, delta: { tool_calls: [{ index: 0, ...piece }] } });
    return [
      part({
        id: crypto.randomUUID().replaceAll("-", ""),
        type: "function",
        function: { name: this.call.name, arguments: text.slice(0, 1) },
      }),
      part({ function: { arguments: text.slice(1) } }),
      JSON.stringify({ ...event, choices: [{ ...choice, delta: {}, finish_reason: "tool_calls" }] }),
    ];
  }
}

/** The call as the model would write it, and as most templates render it. */
function rawCall(call: { name: string; arguments: Readonly<JsonObject> }): string {
  const frame = callFrame(call.name);
  return frame.open + dumpJson(call.arguments) + frame.close;
}

const tags = ["<tool_call>", "</tool_call>"];

/** The grammar of exactly one text. */
function grammarOf(text: string, tagsAreTokens: boolean): string {
  const [open, close] = tags;
  if (!tagsAreTokens || !text.startsWith(open)) return `root ::= ${literal(text)}`;
  return `root ::= ${open} ${literal(text.slice(open.length, -close.length))} ${close}`;
}

/** A text as a literal of the server's grammars. */
function literal(text: string): string {
  const escapes: Record<string, string> = { '"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };
  return `"${text.replace(/["\\\n\r\t]/g, (character) => escapes[character])}"`;
}

/** A connection to the server whose every byte is passed on; when it ends, so does the client's. */
function openThrough(target: URL, connection: Connection): Promise<net.Socket> {
  const { host, port, secure } = socketAddress(target);
  return new Promise((resolve, reject) => {
    const socket = secure
      ? tls.connect({ host, port, servername: host }, () => resolve(socket))
      : net.connect({ host, port }, () => resolve(socket));
    socket.on("data", async (bytes: Uint8Array) => {
      socket.pause();
      await connection.write(new Uint8Array(bytes));
      socket.resume();
    });
    socket.on("error", () => {
      connection.destroy();
      reject(new WireError(`the model server at ${target.host} does not answer`));
    });
    socket.on("end", () => void connection.end());
  });
}
