// *Record*: whether the audit log is what was written, the head to write down elsewhere, and the log itself, newest first.

import { labelSchema } from "../../../core/labels.ts";
import { type Field, fieldPages, Fields } from "../fields.tsx";
import { Cell, Empty, partOf, Problem, Table } from "../layout.tsx";
import { isAuditKind, type ShownRecord, type Verification } from "../sources.ts";
import { LabelChip, lasted, Line, number, Pager, State, Time, type Times } from "../text.tsx";
import { type Page, type PageContext, positive, sectionPath } from "../view.ts";
import { SessionLink } from "./now.tsx";

const recordsShown = 25;
/** More than so many records take: their words are short. */
const tableBytesMax = 80_000;

export const recordPage: Page = {
  path: "/record",
  section: "Record",
  everyMs: 2_000,
  async load(context) {
    return {
      title: "Record",
      parts: await Promise.all([
        { id: "record-title", node: <h1>Record</h1> },
        partOf("record-state", () => state(context)),
        partOf("record-head", () => head(context)),
        { id: "record-verify", node: <Verify {...context} verification={context.sources.verification} /> },
        partOf("record-list", () => list(context)),
      ]),
    };
  },
};

async function state({ sources }: PageContext) {
  const { denyAll } = await sources.brokerHello();
  return denyAll === undefined ? null : <Problem text={`Every call is denied: ${denyAll}`} />;
}

async function head({ sources }: PageContext) {
  const { seq, hash } = await sources.head();
  return (
    <>
      <h2>The head to write down</h2>
      <p>
        {number(seq)}{" "}
        {seq === 1 ? "record" : "records"}. Who can write the whole folder can write it anew; a head kept
        elsewhere shows that.
      </p>
      <p class="head">
        <code class="take" id="head">{`${seq}:${hash}`}</code>
      </p>
      <p class="note">
        Later: <code class="take">{`deno task bx audit verify --head ${seq}:${hash}`}</code>
      </p>
    </>
  );
}

function Verify(
  { verification, times, base, viewer }: PageContext & { verification: Verification | undefined },
) {
  const isRunning = verification !== undefined && verification.endedAt === undefined;
  return (
    <>
      <h2>Verify</h2>
      <div role="status">
        {verification === undefined
          ? <p>Walks every record, every hash anew, and holds the end against the head on disk.</p>
          : isRunning
          ? (
            <p>
              <State word="running" /> since <Time times={times} at={verification.startedAt} short />
            </p>
          )
          : <Outcome verification={verification} times={times} />}
      </div>
      <form method="post" action={`${base}/record/verify`}>
        <input type="hidden" name="formKey" value={viewer.formKey} />
        <button type="submit" id="verify" disabled={isRunning}>
          {verification === undefined ? "Verify now" : "Verify again"}
        </button>
      </form>
    </>
  );
}

function Outcome({ verification, times }: { verification: Verification; times: Times }) {
  const { verdict, problem, startedAt, endedAt = startedAt } = verification;
  const when = (
    <>
      <Time times={times} at={endedAt} />, in {lasted(Date.parse(endedAt) - Date.parse(startedAt))}
    </>
  );
  if (verdict === undefined) return <p class="notice bad">{problem} ({when})</p>;
  return (
    <div class={`notice ${verdict.exit === 0 ? "good" : "bad"}`}>
      <p>
        <b>
          <Line value={verdict.text} charactersMax={600} />
        </b>{" "}
        ({when})
      </p>
      {verdict.notes.map((note) => (
        <p>
          <Line value={note} charactersMax={600} />
        </p>
      ))}
      {verdict.last === undefined ? null : (
        <p>
          Its last record: <code class="take">{`${verdict.last.seq}:${verdict.last.hash}`}</code>
        </p>
      )}
    </div>
  );
}

async function list({ sources, query, base, times }: PageContext) {
  const before = positive(query.before);
  const kind = query.kind !== undefined && isAuditKind(query.kind) ? query.kind : undefined;
  const page = await sources.audit({
    limit: recordsShown,
    ...(before === undefined ? {} : { before }),
    ...(kind === undefined ? {} : { kind }),
  });
  const here = (more: Record<string, string>) => {
    const words = new URLSearchParams({ ...(kind === undefined ? {} : { kind }), ...more }).toString();
    return base + sectionPath("Record") + (words === "" ? "" : `?${words}`);
  };
  return (
    <>
      <h2>Records, newest first</h2>
      {page.records.length === 0 ? <Empty>Nothing is recorded here.</Empty> : (
        <Table
          columns={["Seq", "Time", "Kind", "Session", "What", "Label"]}
          numbers={["Seq"]}
          rows={page.records.toReversed()}
          bytesMax={tableBytesMax}
          row={(record) => (
            <tr>
              <Cell name="Seq" kind="number">
                <a href={`${base}/record/${word(record.seq)}`}>{word(record.seq)}</a>
              </Cell>
              <Cell name="Time">
                <Time times={times} at={record.time} />
              </Cell>
              <Cell name="Kind">{word(record.kind)}</Cell>
              <Cell name="Session">
                {typeof record.session === "string"
                  ? <SessionLink base={base} session={record.session} />
                  : null}
              </Cell>
              <Cell name="What">
                <What record={record} />
              </Cell>
              <Cell name="Label">
                <Label value={record.label} />
              </Cell>
            </tr>
          )}
        />
      )}
      <Pager
        older={page.before === undefined ? undefined : here({ before: `${page.before}` })}
        newest={before === undefined ? undefined : here({})}
        olderText="Earlier records"
      />
    </>
  );
}

const stateKeys = ["verdict", "state", "outcome"];
const wordKeys = ["code", "cause"];

function What({ record }: { record: ShownRecord }) {
  return (
    <span class="words">
      {record.tool === undefined ? null : <b>{word(record.tool)}</b>}
      {stateKeys.flatMap((key) =>
        record[key] === undefined ? [] : [<State key={key} word={word(record[key])} />]
      )}
      {wordKeys.flatMap((key) =>
        record[key] === undefined ? [] : [<span key={key}>{word(record[key])}</span>]
      )}
      {record.call === undefined ? null : <span class="soft">call {word(record.call)}</span>}
    </span>
  );
}

export const auditRecordPage: Page = {
  path: "/record/:seq",
  section: "Record",
  everyMs: 60_000,
  async load({ sources, params, query, base, times }) {
    const seq = positive(params.seq);
    const record = seq === undefined ? undefined : await sources.record(seq);
    if (record === undefined) {
      return {
        title: "No such record",
        parts: [{ id: "record", node: <h1>No such record</h1> }],
        httpStatus: 404,
      };
    }
    const href = (part: number) => `${base}/record/${seq}?part=${part}`;
    const node = (
      <>
        <p class="crumbs">
          <a href={base + sectionPath("Record")}>Record</a>
        </p>
        <h1>Record {word(record.seq)}: {word(record.kind)}</h1>
        <p class="facts-line">
          <Time times={times} at={record.time} />
          {typeof record.session === "string" ? <SessionLink base={base} session={record.session} /> : null}
          <What record={record} />
          <Label value={record.label} />
          {record.kind === "decision"
            ? <a href={`${base}/consults/${word(record.seq)}`}>as a decision</a>
            : null}
        </p>
        <Fields pages={fieldPages(fieldsOf(record))} part={positive(query.part) ?? 1} href={href} />
      </>
    );
    return { title: `Record ${seq}`, parts: [{ id: "record", node }] };
  },
};

function fieldsOf(record: ShownRecord): Field[] {
  const texts = ["body", "question", "answer", "reason"];
  const rest = Object.entries(record).filter(([key]) => !texts.includes(key));
  return [
    ...texts.flatMap((name): Field[] => {
      const text = record[name];
      return typeof text === "string" ? [{ name, text, kind: name === "body" ? "exact" : "prose" }] : [];
    }),
    { name: "all else that it says", text: JSON.stringify(Object.fromEntries(rest), null, 2), kind: "exact" },
  ];
}

function Label({ value }: { value: unknown }) {
  const label = labelSchema.safeParse(value);
  return label.success ? <LabelChip label={label.data} /> : null;
}

function word(value: unknown): string {
  const text = typeof value === "string" ? value : JSON.stringify(value ?? null);
  return text.replaceAll(/[^\w .:-]/g, "?").slice(0, 64);
}
