// Chance that can be had again: numbers, choices and spoilt texts from one seed. It knows nothing of what is spoilt.

export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** A generator of its own, so that workers that take turns as they like stay the same each for itself. */
  fork(): Random {
    return new Random(this.below(2 ** 32));
  }

  /** 0 up to, not including, `bound`. */
  below(bound: number): number {
    // mulberry32: 32 bits of state, enough for choosing.
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * bound);
  }

  chance(oneIn: number): boolean {
    return this.below(oneIn) === 0;
  }

  pick<T>(from: readonly T[]): T {
    return from[this.below(from.length)];
  }

  /** One of the rows, as often as its weight says. */
  weighted<T>(rows: readonly (readonly [weight: number, value: T])[]): T {
    let at = this.below(rows.reduce((sum, [weight]) => sum + weight, 0));
    for (const [weight, value] of rows) {
      if (at < weight) return value;
      at -= weight;
    }
    return rows[rows.length - 1][1];
  }

  /** Any characters, mostly ordinary ones. */
  text(charactersMax: number): string {
    const length = this.below(charactersMax + 1);
    let text = "";
    while (text.length < length) {
      text += this.weighted([
        [20, () => String.fromCharCode(0x20 + this.below(95))],
        [2, () => String.fromCharCode(this.below(0x20))],
        [2, () => String.fromCodePoint(this.below(0xd800))],
        [1, () => String.fromCodePoint(0x10000 + this.below(0x100000))],
        [1, () => String.fromCharCode(0xd800 + this.below(0x800))],
        [1, () => this.pick(oddTexts)],
      ])();
    }
    return text;
  }
}

export const oddTexts = [
  "../",
  "..%2f",
  "%00",
  "\u0000",
  "\r\n",
  "\u2028",
  "\u202e",
  "\ufeff",
  "__proto__",
  "constructor",
  "</script>",
  "<|im_end|>",
  "{}",
  "[]",
  "null",
  '"',
  "\\",
  "9".repeat(400),
  "1e999",
  "-0",
  "NaN",
  "🧮",
  "e\u0301",
  "\ud800",
] as const;

const spoiltTimesMax = 4;

/** `bytes` with a few places changed, cut, doubled, swapped or filled. */
export function spoil(bytes: Uint8Array, random: Random): Uint8Array<ArrayBuffer> {
  let spoilt = bytes.slice() as Uint8Array<ArrayBuffer>;
  for (let times = 1 + random.below(spoiltTimesMax); times > 0; times--) spoilt = spoilOnce(spoilt, random);
  return spoilt;
}

function spoilOnce(bytes: Uint8Array<ArrayBuffer>, random: Random): Uint8Array<ArrayBuffer> {
  const at = random.below(bytes.length + 1);
  const to = Math.min(bytes.length, at + 1 + random.below(random.chance(4) ? bytes.length + 1 : 16));
  const before = bytes.subarray(0, at);
  const piece = bytes.subarray(at, to);
  const after = bytes.subarray(to);
  const whole = (...parts: Uint8Array[]) => join(parts);
  switch (random.below(8)) {
    case 0: {
      const flipped = bytes.slice();
      if (flipped.length > 0) flipped[Math.min(at, flipped.length - 1)] ^= 1 << random.below(8);
      return flipped;
    }
    case 1:
      return whole(before, after);
    case 2:
      return whole(before, piece, piece, after);
    case 3:
      return whole(before, new TextEncoder().encode(random.pick(oddTexts)), piece, after);
    case 4:
      return whole(before);
    case 5:
      return whole(before, after, piece);
    case 6:
      return whole(before, new Uint8Array(random.below(64)).map(() => random.below(256)), after);
    default: {
      // A digit becomes another: lengths, numbers and versions stay readable and wrong.
      const digits = [...bytes.keys()].filter((index) => bytes[index] >= 0x30 && bytes[index] <= 0x39);
      const changed = bytes.slice();
      if (digits.length > 0) changed[random.pick(digits)] = 0x30 + random.below(10);
      return changed;
    }
  }
}

function join(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
