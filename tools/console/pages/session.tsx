// One session: its place in the tree, and its transcript from the end, with labels and calls. A child stands where it was called, with the end
// of its own transcript inside; how much of all that is shown is bounded, and the rest is one link away.

import { raw } from "hono/html";
import type { Child } from "hono/jsx";
import { isJsonObject, parseJsonObject } from "../../../core/json.ts";
import { ancestorSessionIds, isSessionId, type SessionId } from "../../../core/ids.ts";
import { labelSchema } from "../../../core/labels.ts";
import type { SessionListRow } from "../../../core/protocol/loop.ts";
import { type Field, fieldPages, Fields } from "../fields.tsx";
import { Empty, fitting, html, partOf } from "../layout.tsx";
import type { ShownRecord } from "../sources.ts";
import {
  beginning,
  Block,
  costOf,
  LabelChip,
  lasted,
  Line,
  number,
  Pager,
  percent,
  State,
  Time,
  type Times,
} from "../text.tsx";
import { type Page, type PageContext, positive, sectionPath } from "../view.ts";
import { SessionLink } from "./now.tsx";
import { SessionTable, SessionTableRow } from "./sessions.tsx";

/** Records on one page of a transcript, and of a child inside it. */
const recordsShown = 40;
const childRecordsShown = 12;
/** Children shown inside a transcript, a third as many inside each of those, and how deep they nest. */
const nestedMax = 9;
const nestedDepthMax = 3;
/** Bytes of a transcript on one page, of which one text takes no more than the second. */
const transcriptBytesMax = 64_000;
const oneTextBytesMax = 4_000;
/** What a record, a call and a child take beside their texts, generously. */
const markupBytes = { record: 900, call: 1_000, child: 1_400 };
/** Children in the list below the transcript. */
const childrenListed = 12;
const childrenBytesMax = 16_000;

export const sessionPage: Page = {
  path: "/sessions/:id",
  section: "Sessions",
  everyMs: 1_000,
  async load(context) {
    const { id } = context.params;
    if (!isSessionId(id)) return unknownSession();
    const row = await context.sources.session(id);
    if (row === undefined) return unknownSession();
    return {
      title: id,
      parts: await Promise.all([
        { id: "session-head", node: <SessionHead {...context} row={row} /> },
        partOf("transcript", () => transcript(id, context)),
        partOf("children", () => children(row, context)),
      ]),
    };
  },
};

function unknownSession() {
  const node = (
    <>
      <h1>No such session</h1>
      <p>It may have been retired or forgotten. Its audit records are kept.</p>
    </>
  );
  return { title: "No such session", parts: [{ id: "session-head", node }], httpStatus: 404 } as const;
}

function SessionHead({ row, base, times }: PageContext & { row: SessionListRow }) {
  const { session, status, slot, summary, changed, title } = row;
  const ancestors = ancestorSessionIds(session).toReversed();
  return (
    <>
      <p class="crumbs">
        <a href={base + sectionPath("Sessions")}>Sessions</a>
        {ancestors.map((ancestor) => (
          <>
            <span aria-hidden="true">/</span>
            <a href={`${base}/sessions/${ancestor}`}>
              <Line value={ancestor} charactersMax={64} />
            </a>
          </>
        ))}
      </p>
      <h1>
        <Line value={session} charactersMax={64} />
      </h1>
      {title === "" ? null : (
        <p class="title">
          <Line value={title} />
        </p>
      )}
      <p class="facts-line">
        {status === null ? null : <State word={status} />}
        {summary === null ? null : <LabelChip label={summary.label} />}
        <span>slot {slot}</span>
        {summary === null ? null : (
          <>
            <span>{number(summary.turns)} {summary.turns === 1 ? "turn" : "turns"}</span>
            {summary.cachedShare === null
              ? null
              : <span>{percent(summary.cachedShare)} of its prompts kept</span>}
            <span>
              {number(summary.usage.promptTokens - summary.usage.cachedTokens)} tokens computed,{" "}
              {number(summary.usage.completionTokens)} written
            </span>
          </>
        )}
        <span>
          last change <Time times={times} at={changed} />
        </span>
        <a href={`${base}${sectionPath("Consults")}?session=${session}`}>its consults</a>
      </p>
    </>
  );
}

async function transcript(id: SessionId, context: PageContext) {
  const before = positive(context.query.before);
  const page = await context.sources.log(id, {
    limit: recordsShown,
    ...(before === undefined ? {} : { before }),
  });
  const nested = await nest(page.records, context, { depth: 1, most: nestedMax });
  const here = `${context.base}/sessions/${id}`;
  const { node, firstSeq } = renderTranscript({
    session: id,
    records: page.records,
    nested,
    context,
    room: new Room(),
  });
  // Where the page has no room for all, the earlier ones are on the page before.
  const older = firstSeq !== undefined && firstSeq > 1 ? firstSeq : undefined;
  return (
    <>
      <h2 class="hidden">Transcript</h2>
      <Pager
        older={older === undefined ? undefined : `${here}?before=${older}`}
        newest={before === undefined ? undefined : here}
        olderText="Earlier records"
      />
      {page.records.length === 0 ? <Empty>Nothing was said yet.</Empty> : node}
    </>
  );
}

interface Nested {
  readonly row: SessionListRow;
  readonly records: readonly ShownRecord[];
  readonly nested: ReadonlyMap<string, Nested>;
}

/** The children that these records spawned, the last first as far as there is room, each with the end of its own transcript. */
async function nest(
  records: readonly ShownRecord[],
  context: PageContext,
  { depth, most }: { depth: number; most: number },
): Promise<ReadonlyMap<string, Nested>> {
  if (depth > nestedDepthMax) return new Map();
  const spawned = records.toReversed().flatMap(({ kind, child }) =>
    kind === "spawn" && typeof child === "string" && isSessionId(child) ? [child] : []
  ).slice(0, most);
  const children = await Promise.all(spawned.map(async (child): Promise<[string, Nested] | undefined> => {
    const row = await context.sources.session(child);
    if (row === undefined) return undefined;
    const page = await context.sources.log(child, { limit: childRecordsShown });
    const nested = await nest(page.records, context, {
      depth: depth + 1,
      most: Math.ceil(most / nestedDepthMax),
    });
    return [child, { row, records: page.records, nested }];
  }));
  return new Map(children.filter((child) => child !== undefined));
}

async function children(row: SessionListRow, context: PageContext): Promise<Child> {
  if (row.children === 0) return null;
  const { sources, base, times, query } = context;
  const page = await sources.sessions({
    limit: childrenListed,
    parent: row.session,
    ...(query.after === undefined ? {} : { after: query.after }),
  });
  const shown = fitting(
    page.sessions,
    childrenBytesMax,
    (child) => <SessionTableRow row={child} depth={0} more={child.children} base={base} times={times} />,
  );
  const after = shown.length < page.sessions.length ? page.sessions[shown.length - 1].session : page.after;
  return (
    <>
      <h2>Children</h2>
      <SessionTable rows={shown} />
      <Pager
        older={after === undefined ? undefined : `${base}/sessions/${row.session}?after=${after}`}
        newest={query.after === undefined ? undefined : `${base}/sessions/${row.session}`}
        olderText="Earlier children"
      />
    </>
  );
}

/** What may still stand on this page. */
class Room {
  #left = transcriptBytesMax;

  /** Whether there is room for one more of these; takes it. */
  takeMarkup(of: keyof typeof markupBytes): boolean {
    if (this.#left < markupBytes[of]) return false;
    this.#left -= markupBytes[of];
    return true;
  }

  /** The beginning of the text that there is room for. */
  takeText(text: string): string {
    const first = beginning(text, Math.min(oneTextBytesMax, this.#left));
    this.#left -= costOf(first);
    return first;
  }
}

interface Shown {
  readonly session: string;
  readonly context: PageContext;
  readonly room: Room;
}

/** The newest records that there is room for, in the order in which they were written, and the first of them. */
function renderTranscript({ records, nested, ...shown }: Shown & {
  records: readonly ShownRecord[];
  nested: ReadonlyMap<string, Nested>;
}): { node: Child; firstSeq: number | undefined } {
  const calls = new Set(records.flatMap(({ calls }) => callsOf(calls).map(({ call }) => call)));
  const results = new Map(
    records.filter(({ kind }) => kind === "result").map((record) => [record.call, record]),
  );
  const spawns = new Map(
    records.filter(({ kind }) => kind === "spawn").map((record) => [record.call, record]),
  );
  const items: Child[] = [];
  let firstSeq: number | undefined;
  for (const record of records.toReversed()) {
    // What belongs to a call stands inside it, where the call is on this page.
    const isInCall = (record.kind === "result" || record.kind === "spawn") &&
      calls.has(record.call as number);
    if (isInCall) continue;
    if (!shown.room.takeMarkup("record")) break;
    // Rendered here and not when the page is: the newest take what room there is.
    const item = html(
      <li class={`record ${word(record.kind)}`} id={`record-${shown.session}-${word(record.seq)}`}>
        <RecordView {...shown} record={record} results={results} spawns={spawns} nested={nested} />
      </li>,
    );
    items.unshift(raw(item));
    firstSeq = typeof record.seq === "number" ? record.seq : firstSeq;
  }
  return { node: <ol class="transcript">{items}</ol>, firstSeq };
}

interface InTranscript extends Shown {
  readonly record: ShownRecord;
  readonly results: ReadonlyMap<unknown, ShownRecord>;
  readonly spawns: ReadonlyMap<unknown, ShownRecord>;
  readonly nested: ReadonlyMap<string, Nested>;
}

function RecordView(shown: InTranscript) {
  const { record, context } = shown;
  const { times } = context;
  switch (record.kind) {
    case "user":
      return (
        <>
          <RecordHead
            times={times}
            record={record}
            who={shown.session.startsWith("chat-") ? "You" : "Task"}
          />
          <Preview {...shown} text={textOf(record.text)} />
        </>
      );
    case "assistant":
      return <Assistant {...shown} />;
    case "result":
      return <Result {...shown} result={record} />;
    case "spawn":
      return <Spawned {...shown} child={textOf(record.child)} />;
    case "end":
      return (
        <p class="note">
          <Time times={times} at={record.time} short /> turn {word(record.turn)}{" "}
          <State word={word(record.status)} />
          {record.reason === undefined ? null : (
            <>
              {record.reason === record.status ? "" : `${word(record.reason)}: `}
              <Line value={textOf(record.detail)} />
            </>
          )}
        </p>
      );
    case "open":
      return (
        <p class="note">
          <Time times={times} at={record.time} /> began as <Label value={record.label} />
        </p>
      );
    case "epoch":
      return (
        <>
          <p class="note">
            <Time times={times} at={record.time} short /> epoch {word(record.epoch)}: a baseline of{" "}
            {number(textOf(record.system).length)} characters and {number(textOf(record.tools).length)}{" "}
            of tools. <a href={recordPath(shown)}>Read it</a>
          </p>
          {record.summary === undefined ? null : (
            <>
              <p class="note">This summary stands for what was said before:</p>
              <Preview {...shown} text={textOf(record.summary)} />
            </>
          )}
        </>
      );
    default:
      return <OtherRecord {...shown} />;
  }
}

/** A record of a kind that is of little interest, or that this console does not know: nothing recorded is hidden. */
function OtherRecord({ record, context }: InTranscript) {
  const { v: _v, seq: _seq, time, kind, text, ...rest } = record;
  return (
    <p class="note">
      <Time times={context.times} at={time} short /> {word(kind)}{" "}
      {Object.keys(rest).length === 0 ? null : <Line value={JSON.stringify(rest)} />}{" "}
      {typeof text === "string" ? <Line value={text} /> : null}
    </p>
  );
}

function RecordHead({ times, record, who }: { times: Times; record: ShownRecord; who: string }) {
  return (
    <p class="record-head">
      <b>{who}</b> <Time times={times} at={record.time} />
    </p>
  );
}

function Assistant(shown: InTranscript) {
  const { record, context, session } = shown;
  const content = textOf(record.content);
  const thinking = textOf(record.thinking);
  return (
    <>
      <RecordHead times={context.times} record={record} who="Model" />
      {thinking === "" ? null : (
        <details id={`thinking-${session}-${word(record.seq)}`}>
          <summary>Thinking, {number(thinking.length)} characters</summary>
          <Preview {...shown} text={thinking} />
        </details>
      )}
      {content === "" ? null : <Preview {...shown} text={content} />}
      <Calls {...shown} calls={callsOf(record.calls)} />
      <p class="cost">{costText(record)}</p>
    </>
  );
}

interface ModelCall {
  readonly call: number;
  readonly name: string;
  readonly arguments: string;
}

function callsOf(value: unknown): ModelCall[] {
  if (!Array.isArray(value)) return [];
  return value.flatMap((one) =>
    isJsonObject(one) && typeof one.call === "number" && typeof one.name === "string" &&
      typeof one.arguments === "string"
      ? [{ call: one.call, name: one.name, arguments: one.arguments }]
      : []
  );
}

function Calls({ calls, ...shown }: InTranscript & { calls: readonly ModelCall[] }) {
  const nodes: Child[] = [];
  for (const call of calls) {
    if (!shown.room.takeMarkup("call")) break;
    nodes.push(raw(html(<Call {...shown} call={call} />)));
  }
  return (
    <>
      {nodes}
      {nodes.length === calls.length ? null : (
        <p class="note">
          <a href={recordPath(shown)}>{number(calls.length - nodes.length)} more calls</a>
        </p>
      )}
    </>
  );
}

function Call({ call, ...shown }: InTranscript & { call: ModelCall }) {
  const result = shown.results.get(call.call);
  const child = shown.spawns.get(call.call)?.child;
  const tool = result === undefined ? innerTool(call) : textOf(result.tool);
  return (
    <div class="call">
      <p class="call-head">
        <span class="call-number">call {call.call}</span>
        <b>
          <Line value={tool} charactersMax={64} />
        </b>
        {result === undefined ? <State word="running" /> : <ResultState result={result} />}
      </p>
      <Preview {...shown} text={call.arguments} kind="exact" />
      {typeof child === "string" ? <Spawned {...shown} child={child} /> : null}
      {result === undefined ? null : (
        <>
          <p class="said">what the model read of it</p>
          <Preview {...shown} record={result} text={textOf(result.text)} />
        </>
      )}
    </div>
  );
}

function Result({ result, ...shown }: InTranscript & { result: ShownRecord }) {
  return (
    <div class="call">
      <p class="call-head">
        <span class="call-number">call {word(result.call)}</span>
        <b>
          <Line value={textOf(result.tool)} charactersMax={64} />
        </b>
        <ResultState result={result} />
      </p>
      <Preview {...shown} record={result} text={textOf(result.text)} />
    </div>
  );
}

function ResultState({ result }: { result: ShownRecord }) {
  return (
    <>
      <State word={word(result.status)} />{" "}
      {result.code === undefined ? null : <b class="code">{word(result.code)}</b>}{" "}
      <Label value={result.label} />
    </>
  );
}

function Spawned({ child, nested, ...shown }: InTranscript & { child: string }) {
  const { base } = shown.context;
  const inside = nested.get(child);
  if (inside === undefined || !shown.room.takeMarkup("child")) {
    return (
      <p class="note">
        child <SessionLink base={base} session={child} />
      </p>
    );
  }
  const { row, records } = inside;
  const { node, firstSeq } = renderTranscript({ ...shown, session: child, records, nested: inside.nested });
  const isAtWork = row.status === "running" || row.status === "waiting";
  return (
    <details class="child" id={`child-${child}`} open={isAtWork}>
      <summary>
        child <Line value={child} charactersMax={64} />{" "}
        {row.status === null ? null : <State word={row.status} />}
        {row.summary === null ? null : <LabelChip label={row.summary.label} />}
        <span>slot {row.slot}</span>
      </summary>
      <p class="note">
        <a href={`${base}/sessions/${child}`}>
          {firstSeq === 1 ? "On a page of its own" : "Earlier records, on a page of its own"}
        </a>
      </p>
      {node}
    </details>
  );
}

/** As much of a text as there is room for, and the way to the whole of it. */
function Preview(
  { text, kind = "prose", room, ...shown }: InTranscript & { text: string; kind?: "prose" | "exact" },
) {
  const first = room.takeText(text);
  return (
    <>
      <Block value={first} kind={kind} />
      {first.length === text.length ? null : (
        <p class="note">
          <a href={recordPath(shown)}>All {number(text.length)} characters</a>
        </p>
      )}
    </>
  );
}

function recordPath(
  { context, session, record }: { context: PageContext; session: string; record: ShownRecord },
) {
  return `${context.base}/sessions/${session}/records/${word(record.seq)}`;
}

function costText(record: ShownRecord): string {
  const { timings, slot, queuedMs, firstTokenMs, elapsedMs, lostN } = record;
  const parts = [`slot ${word(slot)}`];
  if (typeof queuedMs === "number" && queuedMs >= 1) parts.push(`waited ${lasted(queuedMs)}`);
  if (typeof firstTokenMs === "number") parts.push(`first token after ${lasted(firstTokenMs)}`);
  if (typeof elapsedMs === "number") parts.push(`${lasted(elapsedMs)} in all`);
  if (isJsonObject(timings)) {
    const { cacheN, promptN, predictedN } = timings;
    if (typeof cacheN === "number" && typeof promptN === "number" && cacheN + promptN > 0) {
      parts.push(`${percent(cacheN / (cacheN + promptN))} of ${number(cacheN + promptN)} prompt tokens kept`);
    }
    if (typeof predictedN === "number") parts.push(`${number(predictedN)} written`);
  }
  if (typeof lostN === "number" && lostN > 0) parts.push(`${number(lostN)} of its own prefix lost`);
  return parts.join(" · ");
}

function innerTool({ name, arguments: given }: ModelCall): string {
  const inner = name === "call_tool" ? parseJsonObject(given)?.name : undefined;
  return typeof inner === "string" ? inner : name;
}

function Label({ value }: { value: unknown }) {
  const label = labelSchema.safeParse(value);
  return label.success ? <LabelChip label={label.data} /> : null;
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value);
}

/** A short word of a record; never a text. */
function word(value: unknown): string {
  return textOf(value).replaceAll(/[^\w .:-]/g, "?").slice(0, 60);
}

export const sessionRecordPage: Page = {
  path: "/sessions/:id/records/:seq",
  section: "Sessions",
  everyMs: 60_000,
  async load({ sources, params, query, base, times }) {
    const seq = positive(params.seq);
    if (!isSessionId(params.id) || seq === undefined) return unknownSession();
    const { records } = await sources.log(params.id, { before: seq + 1, limit: 1 });
    const record = records.find((one) => one.seq === seq);
    if (record === undefined) return unknownSession();
    const href = (part: number) => `${base}/sessions/${params.id}/records/${seq}?part=${part}`;
    const node = (
      <>
        <p class="crumbs">
          <a href={base + sectionPath("Sessions")}>Sessions</a>
          <span aria-hidden="true">/</span>
          <a href={`${base}/sessions/${params.id}?before=${seq + 1}`}>
            <Line value={params.id} charactersMax={64} />
          </a>
        </p>
        <h1>Record {seq}: {word(record.kind)}</h1>
        <p class="facts-line">
          <Time times={times} at={record.time} />
          <Label value={record.label} />
        </p>
        <Fields pages={fieldPages(fieldsOf(record))} part={positive(query.part) ?? 1} href={href} />
      </>
    );
    return { title: `Record ${seq} of ${params.id}`, parts: [{ id: "record", node }] };
  },
};

function fieldsOf(record: ShownRecord): Field[] {
  const { v: _v, seq: _seq, time: _time, kind: _kind, label: _label, calls, ...rest } = record;
  const short = Object.entries(rest).filter(([, value]) => typeof value !== "string");
  return [
    ...Object.entries(rest).flatMap(([name, value]): Field[] =>
      typeof value === "string" && value !== ""
        ? [{ name, text: value, kind: exactNames.includes(name) ? "exact" : "prose" }]
        : []
    ),
    ...callsOf(calls).map((call): Field => ({
      name: `call ${call.call}: ${word(call.name)}`,
      text: call.arguments,
      kind: "exact",
    })),
    ...(short.length === 0
      ? []
      : [{ name: "numbers", text: JSON.stringify(Object.fromEntries(short)), kind: "exact" } as const]),
  ];
}

const exactNames = ["tools", "raw"];
