// Who may look: an address that works once is exchanged for a cookie, and every request is held against where it says it comes from. It keeps
// hashes only, in memory; what a page shows is not its business.

import { Buffer } from "node:buffer";
import { createHash, timingSafeEqual } from "node:crypto";

/** One browser that entered. */
export interface Viewer {
  /** Stands in every form; a form without it did not come from one of our pages. */
  readonly formKey: string;
  /** What the last form led to, shown once. */
  notice: Notice | undefined;
}

export interface Notice {
  readonly tone: "good" | "bad";
  readonly text: string;
}

/** Browsers that may be entered at once; the first gives way. */
const viewersMax = 16;
/** Printed addresses that were not used yet. */
const keysMax = 4;

export class Access {
  /** The first part of every path. Cookies know no port, but a path: no other server of this device is sent ours. */
  readonly base = `/${secret(9).toLowerCase().replaceAll(/[^a-z0-9]/g, "x")}`;
  readonly cookieName: string;
  readonly #host: string;
  /** Hashes of keys that were printed and not yet used. */
  #keys: string[] = [];
  /** By the hash of their cookie. */
  readonly #viewers = new Map<string, Viewer>();

  constructor(port: number) {
    this.#host = `127.0.0.1:${port}`;
    this.cookieName = `boxmaker-console-${port}`;
  }

  get origin(): string {
    return `http://${this.#host}`;
  }

  /** A new address to open, good for one browser. */
  newAddress(): string {
    const key = secret(32);
    this.#keys = [...this.#keys, hash(key)].slice(-keysMax);
    return `${this.origin}/enter?key=${key}`;
  }

  /** The cookie for a key that was printed, which is spent by it; undefined for any other. */
  enter(key: string): string | undefined {
    const hashed = hash(key);
    const at = this.#keys.findIndex((known) => sameText(known, hashed));
    if (at === -1) return undefined;
    this.#keys.splice(at, 1);
    const cookie = secret(32);
    if (this.#viewers.size >= viewersMax) this.#viewers.delete(this.#viewers.keys().next().value ?? "");
    this.#viewers.set(hash(cookie), { formKey: secret(32), notice: undefined });
    return `${this.cookieName}=${cookie}; Path=${this.base}; HttpOnly; SameSite=Strict`;
  }

  viewer(cookie: string | undefined): Viewer | undefined {
    return cookie === undefined ? undefined : this.#viewers.get(hash(cookie));
  }

  isFormKey(viewer: Viewer, key: string): boolean {
    return sameText(hash(viewer.formKey), hash(key));
  }

  /** Why a request is not ours to answer, or undefined. A name that resolves here, or a page of elsewhere, is not this address. */
  refusal(
    request: Request,
    { entering }: { entering: boolean },
  ): { status: 403 | 405 | 421; text: string } | undefined {
    const { method, headers } = request;
    if (headers.get("host") !== this.#host) {
      return { status: 421, text: `This is the console at ${this.origin}, asked for under another name.` };
    }
    if (method !== "GET" && method !== "POST") {
      return { status: 405, text: "Only GET and POST are answered." };
    }
    const origin = headers.get("origin");
    if (origin === null ? method === "POST" : origin !== this.origin) {
      return { status: 403, text: "The request comes from another page." };
    }
    const site = headers.get("sec-fetch-site");
    const fromHere = site === null || site === "same-origin" || site === "none";
    // The printed address may be a link in a page of elsewhere, such as a terminal's; it leads to a page of its own.
    if (fromHere || (entering && headers.get("sec-fetch-mode") === "navigate")) return undefined;
    return { status: 403, text: "The request comes from another page." };
  }
}

function secret(bytes: number): string {
  return Buffer.from(crypto.getRandomValues(new Uint8Array(bytes))).toString("base64url");
}

function hash(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

/** Both are hashes, so of one length. */
function sameText(a: string, b: string): boolean {
  return timingSafeEqual(Buffer.from(a), Buffer.from(b));
}
