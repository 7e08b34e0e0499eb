// How anything is shown on a page. What a model, a peer or a file wrote is hostile text: JSX escapes its markup, and what hides or reorders
// text is written out here, so that what the owner reads is what is there. Also the small words of every page: labels, states, times.

import type { Child } from "hono/jsx";
import { describeLabel, type Label } from "../../core/labels.ts";
import { duration, unsafeCharacters } from "../bxctl/render.ts";

/** One line of a list or a head. */
const lineCharactersMax = 300;

/** The text with every character that hides, reorders or controls written out and marked. */
export function Text({ value }: { value: string }) {
  const parts: Child[] = [];
  let from = 0;
  for (const match of value.matchAll(unsafeCharacters)) {
    if (match.index > from) parts.push(value.slice(from, match.index));
    parts.push(<b class="odd">{writtenOut(match[0])}</b>);
    from = match.index + match[0].length;
  }
  if (from < value.length) parts.push(value.slice(from));
  return <>{parts}</>;
}

function writtenOut(character: string): string {
  return `⟨U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

/** A text on one line, its own direction kept from what stands around it. */
export function Line(
  { value, charactersMax = lineCharactersMax }: { value: string; charactersMax?: number },
) {
  const [first, rest] = split(value.replaceAll(/[\t\n]+/g, " "), charactersMax);
  return (
    <bdi>
      <Text value={first} />
      {rest === "" ? "" : "…"}
    </bdi>
  );
}

/** What a parser drops right behind the tag; without it, it would drop the text's own. */
const newline = "\n";

/** A text of several lines. */
export function Block({ value, kind = "prose" }: { value: string; kind?: "prose" | "exact" }) {
  return <pre class={kind} dir="auto">{newline}<Text value={value} /></pre>;
}

/** The beginning of a text, at most `charactersMax` UTF-16 code units, and what follows; no character is split. */
export function split(text: string, charactersMax: number): [string, string] {
  if (text.length <= charactersMax) return [text, ""];
  const at = /[\ud800-\udbff]/.test(text[charactersMax - 1]) ? charactersMax - 1 : charactersMax;
  return [text.slice(0, at), text.slice(at)];
}

/** Bytes of a page that one piece of a long text may take. */
const pieceBytesMax = 56_000;

/** A text cut where a page of it would grow too heavy, whatever its characters cost once they are written out. One piece at least. */
export function pieces(text: string, bytesMax: number = pieceBytesMax): string[] {
  const found: string[] = [];
  let from = 0;
  let bytes = 0;
  let at = 0;
  for (const character of text) {
    const cost = bytesShown(character);
    if (bytes + cost > bytesMax && at > from) {
      found.push(text.slice(from, at));
      from = at;
      bytes = 0;
    }
    bytes += cost;
    at += character.length;
  }
  found.push(text.slice(from));
  return found;
}

/** The beginning of a text that takes no more than `bytesMax` on a page. Of a long text no more is looked at than that. */
export function beginning(text: string, bytesMax: number): string {
  if (bytesMax <= 0) return "";
  // No character takes less than a byte for each of its code units, so what stands behind cannot be part of it.
  return pieces(text.slice(0, bytesMax + 1), bytesMax)[0];
}

/** Bytes that a text takes on a page, written out. */
export function costOf(text: string): number {
  let bytes = 0;
  for (const character of text) bytes += bytesShown(character);
  return bytes;
}

/** More than the markup of one marked character takes. */
const markedBytes = 36;

function bytesShown(character: string): number {
  const code = character.codePointAt(0) ?? 0;
  if ("&<>\"'".includes(character)) return 6;
  // Most characters are of this kind, and cost no search.
  if (code >= 0x20 && code < 0x7f) return 1;
  if (character.search(unsafeCharacters) !== -1) return markedBytes;
  return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

export function LabelChip({ label }: { label: Label }) {
  return (
    <span class={`chip label-${label.class}${label.untrusted ? " untrusted" : ""}`} title="label">
      {describeLabel(label)}
    </span>
  );
}

const goodWords = ["ok", "completed", "allow", "approved", "answered", "reachable", "sound"];
const badWords = ["denied", "error", "failed", "deny", "expired", "altered", "not reachable"];
const busyWords = ["running", "busy", "waiting", "ask", "asked", "draining", "pending", "never used"];

/** A word that says how something stands; its colour is never the only sign. */
export function State({ word }: { word: string }) {
  const tone = goodWords.includes(word)
    ? "good"
    : badWords.includes(word)
    ? "bad"
    : busyWords.includes(word)
    ? "busy"
    : "plain";
  return <span class={`state ${tone}`}>{word}</span>;
}

/** Times as the owner's clock shows them. */
export class Times {
  readonly #day: Intl.DateTimeFormat;
  readonly #time: Intl.DateTimeFormat;

  constructor(readonly timeZone: string) {
    const parts = { timeZone, hourCycle: "h23" } as const;
    this.#day = new Intl.DateTimeFormat("sv-SE", {
      ...parts,
      year: "numeric",
      month: "2-digit",
      day: "2-digit",
    });
    this.#time = new Intl.DateTimeFormat("sv-SE", {
      ...parts,
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
    });
  }

  /** `14:03:22`. */
  time(at: Date): string {
    return this.#time.format(at);
  }

  /** `2026-12-01 14:03:22`. */
  full(at: Date): string {
    return `${this.#day.format(at)} ${this.#time.format(at)}`;
  }
}

/** A time that a record carries; one that is none is shown as text. */
export function Time({ times, at, short = false }: { times: Times; at: unknown; short?: boolean }) {
  const date = new Date(typeof at === "string" ? at : NaN);
  if (Number.isNaN(date.getTime())) return <Line value={String(at ?? "")} charactersMax={40} />;
  const full = times.full(date);
  return <time datetime={date.toISOString()} title={full}>{short ? times.time(date) : full}</time>;
}

export function lasted(ms: number): string {
  return ms < 1 ? "–" : duration(ms);
}

const numbers = new Intl.NumberFormat("en-GB");

export function number(value: number): string {
  return numbers.format(value);
}

export function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}

export function bytesOf(text: string): number {
  return new TextEncoder().encode(text).length;
}

/** A way to the earlier and the later part of something. */
export function Pager({ older, newest, olderText = "Earlier" }: {
  older?: string;
  newest?: string;
  olderText?: string;
}) {
  if (older === undefined && newest === undefined) return null;
  return (
    <nav class="pager" aria-label="Pages">
      {newest === undefined ? null : <a href={newest}>Newest</a>}
      {older === undefined ? null : <a href={older} rel="next">{olderText}</a>}
    </nav>
  );
}
