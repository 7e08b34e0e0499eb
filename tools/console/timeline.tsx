// The last hour of one slot as a picture: who held it, the wait before, and below whether the request found its prefix kept. Pure: spans in,
// one SVG out, whose size has a bound; the table beside it says the same in words.

import type { SlotSpan } from "../../core/protocol/loop.ts";

/** What the picture covers. */
export const windowMs = 3_600_000;
const barsMax = 120;
/** Units of the picture; it is stretched to the page's width. One unit is a second. */
const unitMs = 1_000;
const width = windowMs / unitMs;
/** Shorter holds are drawn as this much, or nobody would see them. */
const widthMin = 6;
const huesCount = 8;

interface Bar {
  from: number;
  to: number;
  /** Where its wait began. */
  waitFrom: number;
  session: string | undefined;
  state: SlotSpan["state"];
  lost: boolean | undefined;
  count: number;
}

export function Timeline(
  { slot, spans, untilMs }: { slot: string; spans: readonly SlotSpan[]; untilMs: number },
) {
  const bars = barsOf(spans, untilMs);
  const held = new Set(bars.map(({ session }) => session)).size;
  const text = bars.length === 0
    ? `${slot}: not used in the last hour`
    : `${slot}: ${spans.length} requests of ${held} sessions in the last hour`;
  return (
    <svg class="timeline" viewBox={`0 0 ${width} 40`} preserveAspectRatio="none" role="img" aria-label={text}>
      <rect class="lane" x={0} width={width} />
      {[10, 20, 30, 40, 50].map((minutes) => (
        <rect key={minutes} class="tick" x={minutes * 60 - 1} width={2} />
      ))}
      {bars.map((bar) => (
        <g>
          <title>{titleOf(bar)}</title>
          {bar.waitFrom < bar.from
            ? <rect class="wait" x={bar.waitFrom} width={round(bar.from - bar.waitFrom)} />
            : null}
          <rect class={`bar ${barClass(bar)}`} x={bar.from} width={round(bar.to - bar.from)} />
          {bar.lost === undefined
            ? null
            : <rect class={bar.lost ? "lost" : "kept"} x={bar.from} width={round(bar.to - bar.from)} />}
        </g>
      ))}
    </svg>
  );
}

/** The colour of a session, the same wherever it is shown. */
export function hueOf(session: string): string {
  let sum = 0;
  for (const character of session) sum = (sum * 31 + character.charCodeAt(0)) >>> 0;
  return `hue${sum % huesCount}`;
}

function barClass({ session, state }: Bar): string {
  if (state === "draining") return "draining";
  return session === undefined ? "mixed" : hueOf(session);
}

function titleOf({ session, state, count, from, to }: Bar): string {
  const who = state === "draining" ? "draining" : session ?? "several sessions";
  const often = count === 1 ? "" : `, ${count} requests`;
  return `${who}${often}, ${Math.round(to - from)} s`;
}

function barsOf(spans: readonly SlotSpan[], untilMs: number): Bar[] {
  const fromMs = untilMs - windowMs;
  const at = (ms: number) => round(Math.min(Math.max((ms - fromMs) / unitMs, 0), width));
  let bars = spans.flatMap((span): Bar[] => {
    const startMs = Date.parse(span.start);
    const endMs = span.end === null ? untilMs : Date.parse(span.end);
    // A drain that found nothing to wait for is no news.
    if (endMs < fromMs || (span.state === "draining" && endMs - startMs < unitMs)) return [];
    const from = Math.min(at(startMs), width - widthMin);
    return [{
      from,
      to: Math.max(at(endMs), from + widthMin),
      waitFrom: at(startMs - (span.queuedMs ?? 0)),
      session: span.session,
      state: span.state,
      lost: span.kept === undefined ? undefined : span.kept.lostN > 0,
      count: 1,
    }];
  });
  // Neighbours of the same session first, whoever's where that is not enough.
  for (let gap = 4; bars.length > barsMax && gap < width; gap *= 2) {
    bars = merge(bars, gap, (a, b) => a.session === b.session);
    if (bars.length > barsMax && gap >= 16) bars = merge(bars, gap, () => true);
  }
  return bars;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

function merge(bars: readonly Bar[], gap: number, mayJoin: (a: Bar, b: Bar) => boolean): Bar[] {
  const merged: Bar[] = [];
  for (const bar of bars) {
    const last = merged.at(-1);
    if (last === undefined || last.state !== bar.state || bar.from - last.to > gap || !mayJoin(last, bar)) {
      merged.push({ ...bar });
      continue;
    }
    last.to = Math.max(last.to, bar.to);
    last.count += bar.count;
    if (last.session !== bar.session) last.session = undefined;
    if (bar.lost !== undefined) last.lost = (last.lost ?? false) || bar.lost;
  }
  return merged;
}
