// Work that the clock starts: cron jobs and the heartbeat, each in a session of its own on the background slot (B5).
// Each due time runs at most once; those that were missed while loopd was down collapse to one. What is still running or waiting when it
// comes due again is skipped and said so, never queued twice.

import { Cron } from "croner";
import type { CronConfig } from "../core/config/loopd_toml.ts";
import { describeError } from "../core/errors.ts";
import { parseSessionId, type SessionId } from "../core/ids.ts";
import type { ScheduleRow } from "../core/protocol/loop.ts";
import { withTimeLine } from "./context/time_line.ts";
import type { RootTurns } from "./root_turns.ts";
import type { Services } from "./services.ts";

interface Job {
  readonly name: string;
  readonly session: SessionId;
  readonly task: string;
  /** The first due time after `afterMs`, or undefined when there is none. */
  next(afterMs: number): number | undefined;
  /** Whether a time missed while loopd was down is made up for. */
  readonly catchesUp: boolean;
  nextAtMs: number | undefined;
  lastStartMs: number | undefined;
  lastSkip: { atMs: number; reason: string } | undefined;
  cancel: () => void;
}

/** A timer's longest step: a clock that was set while we slept is noticed within it. */
const stepMsMax = 60_000;

export class Scheduler {
  #services: Services;
  #turns: RootTurns;
  #jobs: Job[];
  #running = new Set<Promise<void>>();
  #stopped = false;

  constructor(services: Services, turns: RootTurns) {
    this.#services = services;
    this.#turns = turns;
    const { cron, heartbeat } = services.config;
    this.#jobs = cron.map((entry) => cronJob(entry, services.timeZone));
    if (heartbeat !== undefined) {
      this.#jobs.push(heartbeatJob(heartbeat.everyMinutes * 60_000, heartbeat.prompt));
    }
  }

  /** Arms every job; a cron time that passed since the job's last turn is run now, once. */
  async start(): Promise<void> {
    for (const job of this.#jobs) {
      job.lastStartMs = await this.#lastStart(job.session);
      const now = this.#services.clock.now();
      const missed = job.catchesUp && job.lastStartMs !== undefined ? job.next(job.lastStartMs) : undefined;
      job.nextAtMs = missed !== undefined && missed <= now ? now : job.next(now);
      this.#arm(job);
    }
  }

  rows(): ScheduleRow[] {
    return this.#jobs.map((job) => ({
      name: job.name,
      session: job.session,
      next: job.nextAtMs === undefined ? null : new Date(job.nextAtMs).toISOString(),
      lastStart: job.lastStartMs === undefined ? null : new Date(job.lastStartMs).toISOString(),
      lastSkip: job.lastSkip === undefined
        ? null
        : { time: new Date(job.lastSkip.atMs).toISOString(), reason: job.lastSkip.reason },
    }));
  }

  /** Starts nothing more. Runs that are under way are the turns' to stop. */
  async stop(): Promise<void> {
    this.#stopped = true;
    for (const job of this.#jobs) job.cancel();
    await Promise.all(this.#running);
  }

  #arm(job: Job): void {
    job.cancel();
    if (this.#stopped || job.nextAtMs === undefined) return;
    const { clock } = this.#services;
    const waitMs = Math.min(Math.max(0, job.nextAtMs - clock.now()), stepMsMax);
    job.cancel = clock.schedule(waitMs, () => {
      if (job.nextAtMs !== undefined && clock.now() >= job.nextAtMs) this.#due(job);
      this.#arm(job);
    });
  }

  #due(job: Job): void {
    const { clock, holds, report } = this.#services;
    const now = clock.now();
    job.nextAtMs = job.next(now);
    if (holds.has(job.session)) {
      job.lastSkip = { atMs: now, reason: `session ${job.session} is still in its turn` };
      report({ event: "skipped", job: job.name, reason: job.lastSkip.reason });
      return;
    }
    job.lastStartMs = now;
    const run = this.#run(job, now).catch((error) => {
      if (!this.#stopped) report({ event: "job-failed", job: job.name, text: describeError(error) });
    }).finally(() => this.#running.delete(run));
    this.#running.add(run);
  }

  async #run(job: Job, dueMs: number): Promise<void> {
    const { store, config, timeZone, report } = this.#services;
    const session = await store.exists(job.session)
      ? await store.get(job.session)
      : await store.create(job.session, { class: config.session.class, untrusted: false });
    const outcome = await this.#turns.begin(session, withTimeLine(job.task, dueMs, timeZone), () => {});
    report({
      event: "job-ended",
      job: job.name,
      status: outcome.status,
      ...(outcome.reason ? { reason: outcome.reason } : {}),
    });
  }

  async #lastStart(id: SessionId): Promise<number | undefined> {
    if (!await this.#services.store.exists(id)) return undefined;
    const startedAt = (await this.#services.store.get(id)).turnStartedAt;
    return startedAt === "" ? undefined : Date.parse(startedAt);
  }
}

function cronJob(entry: CronConfig, timeZone: string): Job {
  const pattern = new Cron(entry.schedule, { paused: true, timezone: timeZone, mode: "5-or-6-parts" });
  return {
    name: entry.name,
    session: parseSessionId(`job-${entry.name}`),
    task: entry.task,
    next: (afterMs) => pattern.nextRun(new Date(afterMs))?.getTime(),
    catchesUp: true,
    nextAtMs: undefined,
    lastStartMs: undefined,
    lastSkip: undefined,
    cancel: () => {},
  };
}

// A pulse is about now: one that was missed is not made up for.
function heartbeatJob(everyMs: number, prompt: string): Job {
  return {
    name: "heartbeat",
    session: parseSessionId("heartbeat"),
    task: prompt,
    next: (afterMs) => afterMs + everyMs,
    catchesUp: false,
    nextAtMs: undefined,
    lastStartMs: undefined,
    lastSkip: undefined,
    cancel: () => {},
  };
}
