// The sink: a chat-completions endpoint that records, byte for byte, what reached it. Usable in-process
// (`startConsultEndpoint`) and as a program (`--help`).
// Owns: the records and their order. A record exists, and its files are written, before the first byte of a reply
// goes out. It listens on loopback alone, re-serialises nothing, and forwards nothing.

import { Command, InvalidArgumentError } from "commander";
import { Arrivals } from "./arrivals.ts";
import { type Behaviour, leave, parseBehaviour, perform, unlessGone } from "./consult_behaviour.ts";
import { type Connection, headerOf, latin1, listen, type RawBody, type RawHead, WireError } from "./wire.ts";

const requestsPerConnectionMax = 1_000;

/** One request as it reached the socket. */
export interface ConsultRequest {
  /** From 1, in order of arrival. */
  readonly order: number;
  /** The TCP connection it came on, from 1. */
  readonly connection: number;
  /** The head through its blank line, one character a byte. */
  readonly head: string;
  readonly headBytes: Uint8Array;
  readonly method: string;
  readonly target: string;
  /** In the order and the spelling of the wire. */
  readonly headers: readonly [name: string, value: string][];
  /** Exactly the bytes after the head, chunk framing included if there was any. */
  body: Uint8Array;
  /** The body without chunk framing; the same bytes when a length was announced. */
  content: Uint8Array;
  /** The whole announced body arrived. */
  complete: boolean;
  /** Bytes that came after the body on a connection that was to close. */
  trailing: Uint8Array;
  /** False for bytes that are no HTTP request: they stand in `headBytes`. */
  readonly wellFormed: boolean;
  /** Milliseconds since 1970, with their fraction. */
  readonly arrivedAtMs: number;
  /** The behaviour has done all it does. */
  ended: boolean;
}

/** One behaviour for all; a list, one for each request, the last for all further ones; or a choice by request. */
export type BehaviourSource =
  | Behaviour
  | readonly Behaviour[]
  /** Called when the body was read: a reset before or in the body cannot be chosen here. */
  | ((request: ConsultRequest) => Behaviour | Promise<Behaviour>);

export interface ConsultEndpointOptions {
  /** Default 0: a free one. */
  port?: number;
  behaviour?: BehaviourSource;
  /** A folder that gets `NNNN.head` and `NNNN.body` for each request. */
  recordDir?: string;
}

export interface ConsultEndpoint extends AsyncDisposable {
  /** The whole URL of the route, as `[consult] url` wants it. Any other path is served alike. */
  readonly url: string;
  readonly port: number;
  readonly requests: readonly ConsultRequest[];
  /** TCP connections so far, those that sent nothing included. */
  readonly connections: number;
  setBehaviour(behaviour: BehaviourSource): void;
  /** Ends every silence there is now. */
  release(): void;
  /** The earliest request that this method has not given out; waits for one. */
  nextRequest(): Promise<ConsultRequest>;
  waitFor(predicate: (request: ConsultRequest) => boolean): Promise<ConsultRequest>;
  close(): Promise<void>;
}

export async function startConsultEndpoint(options: ConsultEndpointOptions = {}): Promise<ConsultEndpoint> {
  const sink = new Sink(options);
  const listener = await listen(
    { hostname: "127.0.0.1", port: options.port ?? 0 },
    (connection) => sink.serve(connection),
  );
  const close = async () => {
    sink.requests.close();
    await listener.close();
  };
  return {
    url: `http://127.0.0.1:${listener.port}/v1/chat/completions`,
    port: listener.port,
    requests: sink.requests.all,
    get connections() {
      return listener.accepted;
    },
    setBehaviour: (behaviour) => sink.setBehaviour(behaviour),
    release: () => sink.release(),
    nextRequest: () => sink.requests.next(),
    waitFor: (predicate) => sink.requests.waitFor(predicate),
    close,
    [Symbol.asyncDispose]: close,
  };
}

class Sink {
  readonly requests = new Arrivals<ConsultRequest>("the consult endpoint");
  readonly #recordDir?: string;
  #behaviour: BehaviourSource = { kind: "answer" };
  #taken = 0;
  #recorded = 0;
  #connections = 0;
  #silence = Promise.withResolvers<void>();

  constructor(options: ConsultEndpointOptions) {
    this.#recordDir = options.recordDir;
    if (options.behaviour !== undefined) this.setBehaviour(options.behaviour);
  }

  setBehaviour(behaviour: BehaviourSource): void {
    this.#behaviour = behaviour;
    this.#taken = 0;
  }

  release(): void {
    this.#silence.resolve();
    this.#silence = Promise.withResolvers<void>();
  }

  async serve(connection: Connection): Promise<void> {
    const number = ++this.#connections;
    for (let count = 1; count <= requestsPerConnectionMax; count++) {
      const head = await this.#readHead(connection, number);
      if (head === undefined) return;
      if (!await this.#answer(head, { connection, number })) return;
    }
  }

  async #readHead(connection: Connection, number: number): Promise<RawHead | undefined> {
    try {
      return await connection.readHead();
    } catch (fault) {
      if (!(fault instanceof WireError)) throw fault;
      const { bytes } = fault;
      this.#record({ bytes, text: latin1(bytes), method: "", target: "", headers: [] }, {
        number,
        wellFormed: false,
      });
      return undefined;
    }
  }

  /** Records the request, then does what the behaviour says. True when the connection serves on. */
  async #answer(head: RawHead, peer: { connection: Connection; number: number }): Promise<boolean> {
    const { connection, number } = peer;
    const fixed = this.#fixedBehaviour();
    if (fixed?.kind === "reset" && (fixed.when === "before-body" || fixed.when === "in-body")) {
      const announced = Number(headerOf(head, "content-length") ?? 0);
      const half = await connection.readUpTo(fixed.when === "in-body" ? Math.floor(announced / 2) : 0);
      const request = this.#record(head, { number, body: { wire: half, content: half, complete: false } });
      leave(fixed, connection);
      this.#end(request);
      return false;
    }
    const body = await readBody(connection, head);
    const request = this.#record(head, { number, body });
    if (!body.complete) {
      this.#end(request);
      return false;
    }
    const behaviour = fixed ?? await this.#chosenBehaviour(request, connection);
    const servesOn = await perform(behaviour, {
      connection,
      ...asked(body.content),
      released: this.#silence.promise,
    });
    const keepAlive = servesOn && headerOf(head, "connection")?.toLowerCase() !== "close";
    if (!keepAlive) request.trailing = connection.takeUnread();
    this.#end(request);
    return keepAlive && !connection.gone.aborted;
  }

  #fixedBehaviour(): Behaviour | undefined {
    const behaviour = this.#behaviour;
    if (typeof behaviour === "function") return undefined;
    if (!Array.isArray(behaviour)) return behaviour as Behaviour;
    return behaviour[Math.min(this.#taken++, behaviour.length - 1)] ?? { kind: "answer" };
  }

  async #chosenBehaviour(request: ConsultRequest, connection: Connection): Promise<Behaviour> {
    const choose = this.#behaviour as (request: ConsultRequest) => Behaviour | Promise<Behaviour>;
    return await unlessGone(connection, choose(request)) ?? { kind: "answer" };
  }

  /** Files first, then the list: whoever is told of a request finds its files. */
  #record(
    head: RawHead,
    arrived: { number: number; body?: RawBody; wellFormed?: boolean },
  ): ConsultRequest {
    const { wire, content, complete } = arrived.body ??
      { wire: new Uint8Array(), content: new Uint8Array(), complete: false };
    const request: ConsultRequest = {
      order: ++this.#recorded,
      connection: arrived.number,
      head: head.text,
      headBytes: head.bytes,
      method: head.method,
      target: head.target,
      headers: head.headers,
      body: wire,
      content,
      complete,
      trailing: new Uint8Array(),
      wellFormed: arrived.wellFormed ?? true,
      arrivedAtMs: performance.timeOrigin + performance.now(),
      ended: false,
    };
    if (this.#recordDir !== undefined) {
      const name = `${this.#recordDir}/${String(request.order).padStart(4, "0")}`;
      Deno.writeFileSync(`${name}.head`, request.headBytes);
      Deno.writeFileSync(`${name}.body`, request.body);
    }
    this.requests.add(request);
    this.requests.changed();
    return request;
  }

  #end(request: ConsultRequest): void {
    request.ended = true;
    this.requests.changed();
  }
}

/** A body whose framing is broken is recorded as far as it came. */
async function readBody(connection: Connection, head: RawHead): Promise<RawBody> {
  try {
    return await connection.readBody(head);
  } catch (fault) {
    if (!(fault instanceof WireError)) throw fault;
    const wire = connection.takeUnread();
    return { wire, content: wire, complete: false };
  }
}

/** What a body asks, as far as it is a chat request at all. */
function asked(body: Uint8Array): { question: string; model: string } {
  try {
    const { model, messages } = JSON.parse(new TextDecoder().decode(body));
    const question = messages.at(-1).content;
    if (typeof question === "string" && typeof model === "string") return { question, model };
  } catch {
    // No JSON, or another shape: such a request asks nothing, and still gets its answer.
  }
  return { question: "", model: "" };
}

const signals = ["SIGINT", "SIGTERM"] as const;

async function main(): Promise<void> {
  const flags = new Command("consult_endpoint")
    .description("A chat-completions endpoint that records the exact bytes of each request.")
    .option("--port <number>", "port on 127.0.0.1; 0 takes a free one", portNumber, 0)
    .option("--record <dir>", "write NNNN.head and NNNN.body for each request into this folder")
    .option("--behaviour <json>", 'what it does, for example {"kind":"status","status":500}', behaviourJson)
    .parse().opts();
  if (flags.record !== undefined) await Deno.mkdir(flags.record, { recursive: true });
  await using endpoint = await startConsultEndpoint({
    port: flags.port,
    behaviour: flags.behaviour,
    recordDir: flags.record,
  });
  console.log(`consult endpoint listening on ${endpoint.url}`);
  const stop = Promise.withResolvers<void>();
  for (const signal of signals) Deno.addSignalListener(signal, stop.resolve);
  await Promise.race([stop.promise, report(endpoint)]);
  for (const signal of signals) Deno.removeSignalListener(signal, stop.resolve);
}

/** One line for each request, with the SHA-256 of its body. */
async function report(endpoint: ConsultEndpoint): Promise<never> {
  for (;;) {
    const { order, method, target, body, complete } = await endpoint.nextRequest();
    const digest = await crypto.subtle.digest("SHA-256", new Uint8Array(body));
    console.log(
      `${String(order).padStart(4, "0")} ${method} ${target} ${body.byteLength} bytes ` +
        `sha256 ${new Uint8Array(digest).toHex()}${complete ? "" : " INCOMPLETE"}`,
    );
  }
}

function portNumber(text: string): number {
  if (!/^\d{1,5}$/.test(text) || Number(text) > 65535) throw new InvalidArgumentError("a port is wanted.");
  return Number(text);
}

function behaviourJson(text: string): Behaviour {
  try {
    return parseBehaviour(text);
  } catch (fault) {
    throw new InvalidArgumentError((fault as Error).message);
  }
}

if (import.meta.main) {
  try {
    await main();
  } catch (fault) {
    console.error(`the consult endpoint cannot start: ${(fault as Error).message}`);
    Deno.exit(2);
  }
}
