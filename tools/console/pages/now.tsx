// *Now*: the slots over the last hour, who waits and why, which sessions are at work, and whether the parts that they need are there.

import type { SlotHistoryAnswer, SlotSpan, StatusAnswer } from "../../../core/protocol/loop.ts";
import { Cell, Empty, fitting, partOf, Table } from "../layout.tsx";
import { LabelChip, lasted, Line, number, percent, State, Time, type Times } from "../text.tsx";
import { hueOf, Timeline, windowMs } from "../timeline.tsx";
import { type Page, type PageContext, sectionPath } from "../view.ts";

/** The newest holds of slots, in words. */
const holdsShown = 15;
/** Bytes of each table. */
const tableBytesMax = 9_000;
/** The picture moves in steps of this, so that it is not sent anew every second. */
const pictureStepMs = 5_000;

export const nowPage: Page = {
  path: "/now",
  section: "Now",
  everyMs: 1_000,
  async load(context) {
    const { sources, times } = context;
    return {
      title: "Now",
      parts: await Promise.all([
        { id: "now-head", node: <h1>Now</h1> },
        partOf("waits-for-you", () => waitsForYou(context)),
        partOf("slots", async () => <Slots history={await sources.slots()} times={times} />),
        partOf("queue", async () => <Queue history={await sources.slots()} base={context.base} />),
        partOf("work", async () => <AtWork history={await sources.slots()} base={context.base} />),
        partOf("holds", async () => <Holds {...context} history={await sources.slots()} />),
        partOf("around", async () => <Around status={await sources.status()} times={times} />),
      ]),
    };
  },
};

async function waitsForYou({ sources, base }: PageContext) {
  const { length } = await sources.approvals();
  if (length === 0) return null;
  return (
    <p class="notice busy">
      {length === 1 ? "One call waits" : `${length} calls wait`} for your decision.{" "}
      <a href={base + sectionPath("Approvals")}>See the exact bytes</a>
    </p>
  );
}

function Slots({ history, times }: { history: SlotHistoryAnswer; times: Times }) {
  const { slots, spans, time, since } = history;
  const untilMs = Math.ceil(Date.parse(time) / pictureStepMs) * pictureStepMs;
  return (
    <>
      <h2>Slots, the last hour</h2>
      {slots.map(({ slot, use, state, holder }) => (
        <div class="lane-row">
          <p class="lane-name">
            <b>{use}</b> slot {slot} <State word={state} />{" "}
            {holder === undefined ? null : <Line value={holder} charactersMax={64} />}
          </p>
          <Timeline
            slot={`${use}, slot ${slot}`}
            spans={spans.filter((span) => span.slot === slot)}
            untilMs={untilMs}
          />
        </div>
      ))}
      <p class="axis" aria-hidden="true">
        {[60, 50, 40, 30, 20, 10, 0].map((minutes) => (
          <span>{times.time(new Date(untilMs - minutes * 60_000)).slice(0, 5)}</span>
        ))}
      </p>
      <p class="legend">
        <span>
          <i class="swatch wait" /> waited
        </span>
        <span>
          <i class="swatch hue0" /> held, a colour for each session
        </span>
        <span>
          <i class="swatch draining" /> draining
        </span>
        <span>
          <i class="swatch kept" /> prefix kept
        </span>
        <span>
          <i class="swatch lost" /> prefix computed again
        </span>
        {Date.parse(since) > untilMs - windowMs
          ? (
            <span>
              loopd started <Time times={times} at={since} short />
            </span>
          )
          : null}
      </p>
    </>
  );
}

/** Why a request stands where it stands, by its rank. */
const reasons: Readonly<Record<string, string>> = {
  live: "you wait for it",
  compaction: "shortens a long conversation",
  "held-subagent": "a child whose parent waits for it",
  cron: "scheduled work",
  heartbeat: "the heartbeat",
  "orphan-subagent": "a child whose parent does not wait",
  "tool-summary": "shortens a tool's output, when nothing else wants the slot",
};

function Queue({ history: { slots }, base }: { history: SlotHistoryAnswer; base: string }) {
  const waiting = slots.flatMap(({ slot, holder, state, queue }) =>
    queue.map((waiter, at) => ({ slot, holder, state, at, ...waiter }))
  );
  return (
    <>
      <h2>Queue</h2>
      {waiting.length === 0 ? <Empty>Nobody waits for a slot.</Empty> : (
        <Table
          columns={["Session", "Rank", "Why it waits", "Slot", "Waited"]}
          numbers={["Slot", "Waited"]}
          rows={waiting}
          bytesMax={tableBytesMax}
          row={({ slot, holder, state, at, session, priority, waitedMs }) => (
            <tr>
              <Cell name="Session">
                <SessionLink base={base} session={session} />
              </Cell>
              <Cell name="Rank">{priority}: {reasons[priority] ?? "its turn"}</Cell>
              <Cell name="Why it waits">
                {at > 0
                  ? `${at} before it`
                  : state === "draining"
                  ? "the server may still work on a request that was cancelled"
                  : (
                    <>
                      behind <Line value={holder ?? "nobody"} charactersMax={64} />
                    </>
                  )}
              </Cell>
              <Cell name="Slot" kind="number">{slot}</Cell>
              <Cell name="Waited" kind="number">{lasted(Math.floor(waitedMs / 1_000) * 1_000)}</Cell>
            </tr>
          )}
        />
      )}
    </>
  );
}

function AtWork({ history: { held }, base }: { history: SlotHistoryAnswer; base: string }) {
  return (
    <>
      <h2>At work</h2>
      {held.length === 0 ? <Empty>No session is in a turn.</Empty> : (
        <Table
          columns={["Session", "State", "Label", "Slot", "Turn", "Prompt kept"]}
          numbers={["Slot", "Turn", "Prompt kept"]}
          rows={held}
          bytesMax={tableBytesMax}
          row={({ session, status, label, slot, turns, cachedShare }) => (
            <tr>
              <Cell name="Session">
                <SessionLink base={base} session={session} />
              </Cell>
              <Cell name="State">
                <State word={status} />
              </Cell>
              <Cell name="Label">
                <LabelChip label={label} />
              </Cell>
              <Cell name="Slot" kind="number">{slot}</Cell>
              <Cell name="Turn" kind="number">{turns}</Cell>
              <Cell name="Prompt kept" kind="number">
                {cachedShare === null ? "–" : percent(cachedShare)}
              </Cell>
            </tr>
          )}
        />
      )}
    </>
  );
}

function Holds({ history: { spans }, times, base }: PageContext & { history: SlotHistoryAnswer }) {
  const shown = spans.filter(({ state }) => state === "busy").slice(-holdsShown).reverse();
  return (
    <>
      <h2>Last requests</h2>
      {shown.length === 0 ? <Empty>No request was sent in the last hour.</Empty> : (
        <Table
          columns={["Time", "Session", "Rank", "Slot", "Waited", "Held", "Prefix kept"]}
          numbers={["Slot", "Waited", "Held", "Prefix kept"]}
          rows={shown}
          bytesMax={tableBytesMax}
          row={(span) => (
            <tr>
              <Cell name="Time">
                <Time times={times} at={span.start} short />
              </Cell>
              <Cell name="Session">
                <SessionLink base={base} session={span.session ?? ""} />
              </Cell>
              <Cell name="Rank">{span.priority ?? ""}</Cell>
              <Cell name="Slot" kind="number">{span.slot}</Cell>
              <Cell name="Waited" kind="number">{lasted(span.queuedMs ?? 0)}</Cell>
              <Cell name="Held" kind="number">{heldFor(span)}</Cell>
              <Cell name="Prefix kept" kind="number">
                <KeptPrefix kept={span.kept} />
              </Cell>
            </tr>
          )}
        />
      )}
    </>
  );
}

function heldFor({ start, end, how }: SlotSpan) {
  if (end === null) return <State word="running" />;
  const text = lasted(Date.parse(end) - Date.parse(start));
  return how === "abandoned" ? `${text}, broken off` : text;
}

function KeptPrefix({ kept }: { kept: SlotSpan["kept"] }) {
  if (kept === undefined || kept.cacheN + kept.promptN === 0) return <>–</>;
  const { cacheN, promptN, lostN } = kept;
  return (
    <span title={`${number(cacheN)} of ${number(cacheN + promptN)} tokens of the prompt were still there`}>
      {percent(cacheN / (cacheN + promptN))}
      {lostN > 0
        ? (
          <>
            {" "}
            <b class="bad">{number(lostN)} lost</b>
          </>
        )
        : null}
    </span>
  );
}

function Around({ status, times }: { status: StatusAnswer; times: Times }) {
  const { inference, broker, schedule, sessions } = status;
  return (
    <>
      <h2>Around it</h2>
      <dl class="facts">
        <dt>Inference server</dt>
        <dd>
          <State word={inference.reachable ? "reachable" : "not reachable"} /> <Line value={inference.url} />
          {inference.remote ? <b class="bad">not on this device: texts leave it</b> : null}
          {inference.text === undefined ? null : (
            <p>
              <Line value={inference.text} />
            </p>
          )}
        </dd>
        <dt>Broker</dt>
        <dd>
          <State word={broker.reachable ? "reachable" : "not reachable"} />
          {broker.text === undefined ? null : (
            <p>
              <Line value={broker.text} />
            </p>
          )}
        </dd>
        <dt>Sessions</dt>
        <dd>{number(sessions)}</dd>
        {fitting(schedule, tableBytesMax, ({ name, session, next, lastStart, lastSkip }) => (
          <>
            <dt>
              Schedule: <Line value={name} charactersMax={64} />
            </dt>
            <dd>
              next {next === null ? "never" : <Time times={times} at={next} />}, as <Line value={session} />
              {lastStart === null ? null : (
                <>
                  , last began <Time times={times} at={lastStart} />
                </>
              )}
              {lastSkip === null ? null : (
                <p>
                  left out <Time times={times} at={lastSkip.time} />: <Line value={lastSkip.reason} />
                </p>
              )}
            </dd>
          </>
        ))}
      </dl>
    </>
  );
}

/** The way to a session, marked with its colour. */
export function SessionLink({ base, session }: { base: string; session: string }) {
  return (
    <a class="session" href={`${base}/sessions/${session}`}>
      <i class={`swatch ${hueOf(session)}`} />
      <Line value={session} charactersMax={64} />
    </a>
  );
}
