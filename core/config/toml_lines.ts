// Where in a TOML text each key stands, so that a fault can name its line, and which stands twice. Reads a text that the TOML parser has
// accepted, or has accepted up to a line; keeps keys and line numbers alone, never a value.

/** `slots.main`, `grant[1].tool`: tables by name, elements of arrays from 1. */
export type KeyPath = string;

export function keyPath(parts: readonly PropertyKey[]): KeyPath {
  return parts.reduce<string>(
    (path, part) => typeof part === "number" ? `${path}[${part + 1}]` : joinKey(path, String(part)),
    "",
  );
}

/** The key below a path. A key that is no bare TOML key is quoted, and a long one cut. */
export function joinKey(path: KeyPath, key: string): KeyPath {
  const shown = /^[A-Za-z0-9_-]{1,64}$/.test(key) ? key : JSON.stringify(key.slice(0, 64));
  return path === "" ? shown : `${path}.${shown}`;
}

/** Line, from 1, of every key, table header and array element in the text. */
export function keyLines(source: string): Map<KeyPath, number> {
  return new LineScanner(source).scan();
}

/** What stands on a line, where it stands on an earlier one already, in a text that is TOML up to there. */
export interface Repeated {
  readonly key: KeyPath;
  readonly isTable: boolean;
  readonly firstLine: number;
}

export function repeatedOn(source: string, line: number): Repeated | undefined {
  return new LineScanner(source).repeatedOn(line);
}

class LineScanner {
  #at = 0;
  #line = 1;
  readonly #lines = new Map<KeyPath, number>();
  /** How many elements each array of tables has so far. */
  readonly #elements = new Map<KeyPath, number>();

  constructor(readonly source: string) {}

  scan(): Map<KeyPath, number> {
    let table: KeyPath = "";
    for (this.#skipBlank(); !this.#ended(); this.#skipBlank()) {
      if (this.#peek() === "[") table = this.#header();
      else this.#keyValue(table);
    }
    return this.#lines;
  }

  repeatedOn(line: number): Repeated | undefined {
    let table: KeyPath = "";
    for (this.#skipBlank(); !this.#ended() && this.#line <= line; this.#skipBlank()) {
      const isTable = this.#peek() === "[";
      const before = this.#line === line ? new Map(this.#lines) : undefined;
      const key = isTable ? table = this.#header() : this.#keyValue(table);
      const firstLine = before?.get(key);
      if (firstLine !== undefined) return { key, isTable, firstLine };
    }
    return undefined;
  }

  #header(): KeyPath {
    const isArray = this.source.startsWith("[[", this.#at);
    this.#advance(isArray ? 2 : 1);
    let path: KeyPath = "";
    const keys = this.#dottedKey();
    keys.forEach((key, index) => {
      path = joinKey(path, key);
      this.#note(path);
      const isLast = index === keys.length - 1;
      if (isLast && isArray) this.#elements.set(path, (this.#elements.get(path) ?? 0) + 1);
      const element = this.#elements.get(path);
      if (element !== undefined) path = `${path}[${element}]`;
    });
    this.#note(path);
    while (!this.#ended() && this.#peek() === "]") this.#advance(1);
    return path;
  }

  #keyValue(table: KeyPath): KeyPath {
    const before = this.#at;
    let path = table;
    for (const key of this.#dottedKey()) {
      path = joinKey(path, key);
      this.#note(path);
    }
    if (this.#peek() === "=") this.#advance(1);
    this.#value(path);
    // Whatever this scanner does not know must not hold it in place.
    if (this.#at === before) this.#advance(1);
    return path;
  }

  #dottedKey(): string[] {
    const keys: string[] = [];
    while (!this.#ended()) {
      this.#skipSpace();
      const quote = this.#peek();
      if (quote === '"' || quote === "'") keys.push(this.#string());
      else {
        const bare = /[^\s.=\]#,}]*/y;
        bare.lastIndex = this.#at;
        const key = bare.exec(this.source)?.[0] ?? "";
        this.#advance(key.length);
        keys.push(key);
      }
      this.#skipSpace();
      if (this.#peek() !== ".") break;
      this.#advance(1);
    }
    return keys;
  }

  #value(path: KeyPath): void {
    this.#skipSpace();
    const first = this.#peek();
    if (first === '"' || first === "'") this.#string();
    else if (first === "[") this.#array(path);
    else if (first === "{") this.#inlineTable(path);
    else while (!this.#ended() && !",]}#\n".includes(this.#peek())) this.#advance(1);
  }

  #array(path: KeyPath): void {
    this.#advance(1);
    let element = 1;
    for (this.#skipBlank(); !this.#ended() && this.#peek() !== "]"; this.#skipBlank()) {
      if (this.#peek() === ",") {
        element++;
        this.#advance(1);
        continue;
      }
      const before = this.#at;
      this.#note(`${path}[${element}]`);
      this.#value(`${path}[${element}]`);
      if (this.#at === before) this.#advance(1);
    }
    this.#advance(1);
  }

  #inlineTable(path: KeyPath): void {
    this.#advance(1);
    for (this.#skipBlank(); !this.#ended() && this.#peek() !== "}"; this.#skipBlank()) {
      if (this.#peek() === ",") this.#advance(1);
      else this.#keyValue(path);
    }
    this.#advance(1);
  }

  /** Passes over one string of the four kinds; its text serves for quoted keys, so escapes are left as written where they are odd. */
  #string(): string {
    const quote = this.#peek();
    const fence = this.source.startsWith(quote.repeat(3), this.#at) ? quote.repeat(3) : quote;
    this.#advance(fence.length);
    const start = this.#at;
    while (!this.#ended() && !this.source.startsWith(fence, this.#at)) {
      this.#advance(quote === '"' && this.#peek() === "\\" ? 2 : 1);
    }
    // A multi-line string may end in up to two quotes of its own.
    while (fence.length === 3 && this.source.startsWith(quote.repeat(4), this.#at)) this.#advance(1);
    const text = this.source.slice(start, this.#at);
    this.#advance(fence.length);
    return text;
  }

  #note(path: KeyPath): void {
    if (!this.#lines.has(path)) this.#lines.set(path, this.#line);
  }

  #peek(): string {
    return this.source[this.#at] ?? "";
  }

  #ended(): boolean {
    return this.#at >= this.source.length;
  }

  #advance(characters: number): void {
    const end = Math.min(this.#at + characters, this.source.length);
    for (; this.#at < end; this.#at++) {
      if (this.source[this.#at] === "\n") this.#line++;
    }
  }

  #skipSpace(): void {
    while (this.#peek() === " " || this.#peek() === "\t") this.#advance(1);
  }

  #skipBlank(): void {
    for (;;) {
      while (!this.#ended() && " \t\r\n".includes(this.#peek())) this.#advance(1);
      if (this.#peek() !== "#") return;
      while (!this.#ended() && this.#peek() !== "\n") this.#advance(1);
    }
  }
}
