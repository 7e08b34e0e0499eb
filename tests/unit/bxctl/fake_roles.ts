// A home whose two owner's sockets are served by scripted roles, and the CLI run against it with its output captured. What a fake
// role was asked is kept in order, so that a test can tell what a command did from what it said.

import type { Hono } from "hono";
import { streamSSE } from "hono/streaming";
import { homePaths } from "../../../core/home.ts";
import { createApp, listenOnSocket } from "../../../core/wire/server.ts";
import { runCommandLine } from "../../../tools/bxctl/main.ts";
import type { Screen, ScreenHandlers, Terminal } from "../../../tools/bxctl/terminal.ts";
import { ScreenModel } from "../../support/terminal.ts";

export interface Asked {
  readonly method: string;
  readonly path: string;
  readonly body: unknown;
}

export interface FakeHome {
  readonly home: string;
  /** Requests of both roles, in order. */
  readonly asked: Asked[];
  readonly loopd: Hono;
  readonly brokerd: Hono;
}

/** Runs `work` with a home whose roles answer what it registers on `loopd` and `brokerd`. */
export async function withRoles(work: (fake: FakeHome) => Promise<void>): Promise<void> {
  const home = await Deno.makeTempDir({ prefix: "bx" });
  const paths = homePaths(home);
  await Deno.mkdir(paths.run, { mode: 0o700 });
  const asked: Asked[] = [];
  const app = () => {
    const made = createApp((error) => {
      throw error;
    });
    made.use(async (c, next) => {
      const body = c.req.method === "POST" ? await c.req.json() : undefined;
      const { pathname, search } = new URL(c.req.url);
      asked.push({ method: c.req.method, path: pathname + search, body });
      await next();
    });
    return made;
  };
  const loopd = app();
  const brokerd = app();
  const listeners = [
    await listenOnSocket(paths.loopSocket, loopd),
    await listenOnSocket(paths.ownerSocket, brokerd),
  ];
  try {
    await work({ home, asked, loopd, brokerd });
  } finally {
    for (const listener of listeners) await listener.close();
    await Deno.remove(home, { recursive: true });
  }
}

/** A turn that streams these events. */
export function streamTurn(loopd: Hono, events: readonly (readonly [string, unknown])[]): void {
  loopd.post("/v1/sessions/:id/turns", (c) =>
    streamSSE(c, async (stream) => {
      for (const [event, data] of events) await stream.writeSSE({ event, data: JSON.stringify(data) });
    }));
}

/** A terminal that can be redrawn, without a process: keys in, and what a person would see. */
export class FakeScreen implements Screen {
  readonly model: ScreenModel;
  #handlers: ScreenHandlers | undefined;
  #waiting: { readonly what: RegExp; readonly shown: PromiseWithResolvers<void> } | undefined;

  constructor(private columns: number, private readonly rows: number) {
    this.model = new ScreenModel(columns);
  }

  size() {
    return { columns: this.columns, rows: this.rows };
  }

  open(handlers: ScreenHandlers): () => void {
    this.#handlers = handlers;
    return () => this.#handlers = undefined;
  }

  get isOpen(): boolean {
    return this.#handlers !== undefined;
  }

  type(text: string): void {
    this.#handlers?.onInput(text);
  }

  resize(columns: number): void {
    this.columns = columns;
    this.model.resize(columns);
    this.#handlers?.onResize();
  }

  hangUp(): void {
    this.#handlers?.onEnd();
  }

  /** Waits until the screen holds this; told as it is drawn. */
  async shows(what: RegExp): Promise<void> {
    if (what.test(this.model.text)) return;
    this.#waiting = { what, shown: Promise.withResolvers() };
    await this.#waiting.shown.promise;
  }

  write(text: string): void {
    // As a terminal's own output processing does it.
    this.model.write(text.replaceAll("\n", "\r\n"));
    if (this.#waiting?.what.test(this.model.text)) this.#waiting.shown.resolve();
  }
}

export interface BxOptions {
  /** A terminal that can be redrawn; implies `terminal`. */
  readonly screen?: FakeScreen;
  /** Standard output is a terminal, and with `lines` given standard input too. */
  readonly terminal?: boolean;
  readonly colour?: boolean;
  readonly lines?: AsyncIterable<string> | Iterable<string>;
  readonly environment?: { readonly [name: string]: string };
  /** Gets what presses Ctrl-C. */
  readonly onStart?: (interrupt: () => void) => void;
  /** Told of every piece written, as it is written. */
  readonly onWrite?: (text: string) => void;
}

export interface BxResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export async function bx(words: readonly string[], options: BxOptions = {}): Promise<BxResult> {
  const output = { stdout: "", stderr: "" };
  const handlers = new Set<() => void>();
  const terminal: Terminal = {
    write(text) {
      output.stdout += text;
      options.screen?.write(text);
      options.onWrite?.(text);
    },
    writeError(text) {
      output.stderr += text;
      options.screen?.write(text);
    },
    async *lines() {
      yield* options.lines ?? [];
    },
    interactive: options.terminal === true || options.screen !== undefined,
    outputIsTerminal: options.terminal === true || options.screen !== undefined,
    screen: options.screen,
    colour: options.colour === true,
    onInterrupt(handler) {
      handlers.add(handler);
      return () => handlers.delete(handler);
    },
  };
  options.onStart?.(() => handlers.forEach((handler) => handler()));
  const environment = options.environment ?? {};
  const code = await runCommandLine(words, { terminal, environment });
  return { code, ...output };
}

export const privateLabel = { class: "private", untrusted: false } as const;

export function sessionRow(session: string, fields: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    session,
    parent: null,
    kind: "chat",
    status: "idle",
    label: privateLabel,
    slot: 0,
    turns: 1,
    cachedShare: null,
    usage: { promptTokens: 0, cachedTokens: 0, completionTokens: 0 },
    ...fields,
  };
}

export function outcome(session: string, fields: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    session,
    status: "completed",
    content: "Four.",
    label: privateLabel,
    calls: [],
    usage: { promptTokens: 10, cachedTokens: 5, completionTokens: 2 },
    ...fields,
  };
}
