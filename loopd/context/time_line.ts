// The line that tells scheduled work and children what time it is. It stands in the user text, never in the baseline, so the clock never
// breaks a prefix (S3).

const weekdays = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/** `[Tue 2026-12-01 23:03, Europe/Berlin]`. By Temporal, since the first use of `Intl` costs a process ten times as much. */
export function timeLine(atMs: number, timeZone: string): string {
  const there = Temporal.Instant.fromEpochMilliseconds(atMs).toZonedDateTimeISO(timeZone);
  const time = there.toPlainTime().toString({ smallestUnit: "minute" });
  return `[${weekdays[there.dayOfWeek - 1]} ${there.toPlainDate()} ${time}, ${timeZone}]`;
}

/** The user text of scheduled work and of a child: the time line, then the task. */
export function withTimeLine(task: string, atMs: number, timeZone: string): string {
  return `${timeLine(atMs, timeZone)}\n${task}`;
}
