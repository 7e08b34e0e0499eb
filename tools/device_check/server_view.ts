// What the model's server itself says of its slots. Looks only, and sends no message to the model; busy_slot.ts does.

import { isJsonObject, parseJson } from "../../core/json.ts";

export interface ServerAddress {
  /** Base address, without a slash at the end. */
  readonly url: string;
  readonly bearer: string | undefined;
}

export interface SlotView {
  readonly id: number;
  readonly busy: boolean;
  /** Tokens in the slot; `undefined` for one that was never used. */
  readonly tokens: number | undefined;
}

/** A server answers these at once, in the middle of its work, too (facts 3c). */
const answerMsMax = 10_000;

export class ServerView implements Disposable {
  readonly #address: ServerAddress;
  readonly #client = Deno.createHttpClient({ http2: false, poolMaxIdlePerHost: 0 });

  constructor(address: ServerAddress) {
    this.#address = address;
  }

  /** `undefined` where the server does not say. Throws where it does not answer. */
  async totalSlots(): Promise<number | undefined> {
    const props = await this.#get("/props");
    return isJsonObject(props) && typeof props.total_slots === "number" ? props.total_slots : undefined;
  }

  /** `undefined` where the server does not show its slots. Throws where it does not answer. */
  async slots(): Promise<SlotView[] | undefined> {
    const slots = await this.#get("/slots");
    if (!Array.isArray(slots)) return undefined;
    return slots.filter(isJsonObject).map((slot) => ({
      id: Number(slot.id),
      busy: slot.is_processing === true,
      tokens: typeof slot.n_prompt_tokens === "number" ? slot.n_prompt_tokens : undefined,
    }));
  }

  [Symbol.dispose](): void {
    this.#client.close();
  }

  async #get(path: string): Promise<unknown> {
    const response = await fetch(this.#address.url + path, {
      headers: bearerHeader(this.#address),
      redirect: "manual",
      signal: AbortSignal.timeout(answerMsMax),
      client: this.#client,
    });
    const text = await response.text();
    return response.ok ? parseJson(text)?.value : undefined;
  }
}

export function bearerHeader(address: ServerAddress): Record<string, string> {
  return address.bearer === undefined ? {} : { authorization: `Bearer ${address.bearer}` };
}

/** Gentle enough for any server; asking often delays only the notice of a lost client, and none is lost meanwhile (facts 2.4). */
const lookEveryMs = 100;
const looksMax = 20_000;

/** Looks at the slots again and again while `work` runs; returns every look. */
export async function watchingSlots<T>(
  view: ServerView,
  work: () => Promise<T>,
): Promise<{ result: T; looks: SlotView[][] }> {
  const looks: SlotView[][] = [];
  let done = false;
  const look = async () => {
    while (!done && looks.length < looksMax) {
      // A server that went away shows in the work itself.
      const slots = await view.slots().catch(() => undefined);
      if (slots === undefined) return;
      looks.push(slots);
      await new Promise((resolve) => setTimeout(resolve, lookEveryMs));
    }
  };
  const looking = look();
  try {
    return { result: await work(), looks };
  } finally {
    done = true;
    await looking;
  }
}
