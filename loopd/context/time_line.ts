// The line that tells scheduled work and children what time it is. It stands in the user text, never in the baseline, so the clock never
// breaks a prefix (S3).

/** One for each zone in use, which is one a process: making one costs more than all else that a call of clock does. */
const formats = new Map<string, Intl.DateTimeFormat>();

/** `[Tue 2026-12-01 23:03, Europe/Berlin]`. */
export function timeLine(atMs: number, timeZone: string): string {
  const parts = formatOf(timeZone).formatToParts(atMs);
  const part = (type: Intl.DateTimeFormatPartTypes) => parts.find((one) => one.type === type)?.value ?? "";
  return `[${part("weekday")} ${part("year")}-${part("month")}-${part("day")} ${part("hour")}:${
    part("minute")
  }, ${timeZone}]`;
}

function formatOf(timeZone: string): Intl.DateTimeFormat {
  let format = formats.get(timeZone);
  if (format === undefined) {
    format = new Intl.DateTimeFormat("en-GB", {
      timeZone,
      weekday: "short",
      year: "numeric",
      month: "2-digit",
      day: "2-digit",
      hour: "2-digit",
      minute: "2-digit",
      hourCycle: "h23",
    });
    formats.set(timeZone, format);
  }
  return format;
}

/** The user text of scheduled work and of a child: the time line, then the task. */
export function withTimeLine(task: string, atMs: number, timeZone: string): string {
  return `${timeLine(atMs, timeZone)}\n${task}`;
}
