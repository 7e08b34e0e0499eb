// Small line plots as SVG text. Logarithmic where the values span more than a decade and a half, so that growth shows as slope. Knows no bench.

import type { Curve } from "./bench.ts";

const width = 560;
const height = 300;
const frame = { left: 64, right: 16, top: 36, bottom: 72 };
const colours = ["#1f6feb", "#d1242f", "#1a7f37", "#8250df"];
const logarithmicFrom = 30;

export function plot(curve: Curve): string {
  const points = curve.series.flatMap((series) => series.points);
  const x = makeScale(points.map(([value]) => value), [frame.left, width - frame.right], false);
  const y = makeScale(points.map(([, value]) => value), [height - frame.bottom, frame.top], true);
  const parts = [
    `<rect width="${width}" height="${height}" fill="#ffffff"/>`,
    text(width / 2, 20, curve.title, { anchor: "middle", size: 14, weight: "bold" }),
    ...x.ticks.flatMap((value) => [
      line(x.at(value), frame.top, x.at(value), height - frame.bottom, "#e4e8ee"),
      text(x.at(value), height - frame.bottom + 16, shown(value), { anchor: "middle" }),
    ]),
    ...y.ticks.flatMap((value) => [
      line(frame.left, y.at(value), width - frame.right, y.at(value), "#e4e8ee"),
      text(frame.left - 6, y.at(value) + 4, shown(value), { anchor: "end" }),
    ]),
    line(frame.left, height - frame.bottom, width - frame.right, height - frame.bottom, "#57606a"),
    line(frame.left, frame.top, frame.left, height - frame.bottom, "#57606a"),
    text((frame.left + width - frame.right) / 2, height - frame.bottom + 34, curve.xLabel, {
      anchor: "middle",
    }),
    `<g transform="translate(14 ${(frame.top + height - frame.bottom) / 2}) rotate(-90)">${
      text(0, 0, curve.yLabel, { anchor: "middle" })
    }</g>`,
    ...curve.series.flatMap(({ name, points }, index) => {
      const colour = colours[index % colours.length];
      const places = points.map(([a, b]) => `${round(x.at(a))},${round(y.at(b))}`);
      const legendX = frame.left + index * ((width - frame.left - frame.right) / curve.series.length);
      return [
        `<polyline points="${places.join(" ")}" fill="none" stroke="${colour}" stroke-width="2"/>`,
        ...places.map((place) => {
          const [cx, cy] = place.split(",");
          return `<circle cx="${cx}" cy="${cy}" r="3" fill="${colour}"/>`;
        }),
        line(legendX, height - 18, legendX + 18, height - 18, colour, 2),
        text(legendX + 24, height - 14, name, {}),
      ];
    }),
  ];
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" ` +
    `font-family="system-ui, sans-serif">\n${parts.join("\n")}\n</svg>\n`;
}

interface Scale {
  at(value: number): number;
  readonly ticks: number[];
}

/** `fromZero`: a linear axis begins at 0, so that a flat curve looks flat. */
function makeScale(
  values: readonly number[],
  [from, to]: readonly [number, number],
  fromZero: boolean,
): Scale {
  const low = Math.min(...values);
  const high = Math.max(...values);
  if (low > 0 && high / low >= logarithmicFrom) {
    const first = Math.floor(Math.log10(low));
    const last = Math.ceil(Math.log10(high));
    const decades = Math.max(1, last - first);
    return {
      at: (value) => from + (Math.log10(value) - first) / decades * (to - from),
      ticks: Array.from({ length: decades + 1 }, (_, index) => 10 ** (first + index)),
    };
  }
  const start = fromZero ? 0 : low;
  const step = niceStep((high - start) / 4 || 1);
  const end = Math.max(start + step, Math.ceil(high / step) * step);
  const ticks: number[] = [];
  for (let tick = Math.ceil(start / step) * step; tick <= end + step / 2; tick += step) ticks.push(tick);
  return { at: (value) => from + (value - start) / (end - start) * (to - from), ticks };
}

function niceStep(least: number): number {
  const decade = 10 ** Math.floor(Math.log10(least));
  return decade * [1, 2, 5, 10].find((factor) => factor * decade >= least)!;
}

function shown(value: number): string {
  return value >= 1 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(2)));
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

function line(x1: number, y1: number, x2: number, y2: number, colour: string, stroke = 1): string {
  return `<line x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${
    round(y2)
  }" stroke="${colour}" stroke-width="${stroke}"/>`;
}

function text(
  x: number,
  y: number,
  content: string,
  { anchor = "start", size = 11, weight = "normal" }: { anchor?: string; size?: number; weight?: string },
): string {
  const safe = content.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  return `<text x="${round(x)}" y="${
    round(y)
  }" font-size="${size}" font-weight="${weight}" text-anchor="${anchor}" fill="#24292f">${safe}</text>`;
}
