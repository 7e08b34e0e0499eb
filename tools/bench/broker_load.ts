// Callers of broker.sock that cost little themselves: one kept connection each, requests written by hand, so that what is measured is
// brokerd. Each waits for its answer before it asks again.

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const answerBytesMax = 65_536;

export class Caller implements Disposable {
  #buffer = new Uint8Array(answerBytesMax);

  private constructor(readonly connection: Deno.UnixConn) {}

  static async connect(path: string): Promise<Caller> {
    return new Caller(await Deno.connect({ transport: "unix", path }));
  }

  /** The whole answer, head included. */
  async ask(path: string, body: string): Promise<string> {
    const head = `POST ${path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n` +
      `content-length: ${encoder.encode(body).length}\r\n\r\n`;
    await this.connection.write(encoder.encode(head + body));
    let answer = "";
    for (;;) {
      const count = await this.connection.read(this.#buffer);
      if (count === null) throw new Error("the peer closed the connection");
      answer += decoder.decode(this.#buffer.subarray(0, count), { stream: true });
      const end = answer.indexOf("\r\n\r\n");
      if (end === -1) continue;
      const length = Number(/\r\ncontent-length: (\d+)/i.exec(answer)?.[1]);
      if (answer.length >= end + 4 + length) return answer;
    }
  }

  [Symbol.dispose](): void {
    this.connection.close();
  }
}

let lastCall = 0;

/** A consult of a session whose label no grant admits. */
export function deniedCall(session: string): string {
  return JSON.stringify({
    session,
    call: ++lastCall,
    tool: "consult",
    arguments: { question: "What is 2+2, one word." },
    label: { class: "secret", untrusted: false },
  });
}

/** Durable denials a second with so many callers, over about `ms`. */
export async function denialsPerSecond(path: string, callers: number, ms: number): Promise<number> {
  const began = performance.now();
  const counts = await Promise.all(Array.from({ length: callers }, async (_, index) => {
    using caller = await Caller.connect(path);
    let count = 0;
    for (; performance.now() - began < ms; count++) {
      const answer = await caller.ask("/v1/call", deniedCall(`chat-load${index}`));
      if (!answer.includes(`"denied"`)) throw new Error(`wanted a denial, got ${answer}`);
    }
    return count;
  }));
  return counts.reduce((sum, count) => sum + count, 0) / (performance.now() - began) * 1_000;
}
