// *Consults*: every decision about a call that would leave, its verdict and label, the exact body and its hash, and for a refusal what it would
// have taken. Read from the audit log, newest first, a page at a time.

import type { Child } from "hono/jsx";
import { isSessionId } from "../../../core/ids.ts";
import { parseJsonObject } from "../../../core/json.ts";
import { labelSchema } from "../../../core/labels.ts";
import { type Field, fieldPages, Fields } from "../fields.tsx";
import { Empty, fitting, partOf } from "../layout.tsx";
import type { AuditQuery, ShownRecord } from "../sources.ts";
import { beginning, Block, bytesOf, LabelChip, lasted, Line, number, Pager, State, Time } from "../text.tsx";
import { type Page, type PageContext, positive, sectionPath } from "../view.ts";
import { SessionLink } from "./now.tsx";

/** Decisions on one page, and the bytes of a body or an answer that each shows. */
const decisionsShown = 20;
const previewBytesMax = 1_200;
/** Bytes of all that are shown. */
const cardsBytesMax = 85_000;

export const consultsPage: Page = {
  path: "/consults",
  section: "Consults",
  everyMs: 4_000,
  async load(context) {
    return {
      title: "Consults",
      parts: await Promise.all([
        { id: "consults-head", node: <Head {...context} /> },
        partOf("consults-list", () => list(context)),
      ]),
    };
  },
};

function Head({ query, base }: PageContext) {
  return (
    <>
      <h1>Consults</h1>
      <p class="lead">
        Every decision about a call that would leave this device.
        {query.session === undefined || !isSessionId(query.session) ? null : (
          <>
            {" "}Of <SessionLink base={base} session={query.session} /> only.{" "}
            <a href={base + sectionPath("Consults")}>Show all</a>
          </>
        )}
      </p>
    </>
  );
}

async function list({ sources, query, base, times }: PageContext) {
  const before = positive(query.before);
  const session = query.session !== undefined && isSessionId(query.session) ? query.session : undefined;
  const asked: AuditQuery = {
    limit: decisionsShown,
    ...(before === undefined ? {} : { before }),
    ...(session === undefined ? {} : { session }),
  };
  const [page, intents] = await Promise.all([
    sources.audit({ ...asked, kind: "decision" }),
    sources.audit({ ...asked, kind: "intent" }),
  ]);
  const bodies = new Map(intents.records.map((record) => [record.seq, record]));
  const here = (more: Record<string, string>) => {
    const words = new URLSearchParams({ ...(session === undefined ? {} : { session }), ...more }).toString();
    return base + sectionPath("Consults") + (words === "" ? "" : `?${words}`);
  };
  const decisions = page.records.toReversed();
  const cards = fitting(decisions, cardsBytesMax, (decision) => (
    <li>
      <Decision
        decision={decision}
        intent={bodies.get(decision.intent)}
        base={base}
        when={<Time times={times} at={decision.time} />}
      />
    </li>
  ));
  // Where the page has no room for all, the next begins behind the last that is shown.
  const older = cards.length < decisions.length
    ? positive(word(decisions[cards.length - 1].seq))
    : page.before;
  return (
    <>
      {decisions.length === 0
        ? (
          <Empty>
            {page.before === undefined
              ? "No call was decided yet."
              : "None in this stretch of the log; look further back."}
          </Empty>
        )
        : <ol class="cards">{cards}</ol>}
      <Pager
        older={older === undefined ? undefined : here({ before: `${older}` })}
        newest={before === undefined ? undefined : here({})}
        olderText="Earlier decisions"
      />
    </>
  );
}

function Decision({ decision, intent, base, when }: {
  decision: ShownRecord;
  intent: ShownRecord | undefined;
  base: string;
  when: Child;
}) {
  const { seq, session, reason, answer } = decision;
  const body = bodyOf(decision, intent);
  const sha256 = decision.bodySha256 ?? intent?.bodySha256;
  const path = `${base}/consults/${word(seq)}`;
  return (
    <article class="card">
      <Verdict decision={decision} when={when} />
      <p class="facts-line">
        <SessionLink base={base} session={textOf(session)} />
        <Label value={decision.label} />
        {decision.grant === undefined ? null : <span>grant {word(decision.grant)}</span>}
        {typeof decision.elapsedMs === "number" ? <span>{lasted(decision.elapsedMs)}</span> : null}
      </p>
      {decision.verdict === "deny" && reason !== undefined
        ? (
          <p class="lacks">
            <b>It would have taken</b> <Line value={wouldHaveTaken(decision)} charactersMax={400} />
          </p>
        )
        : reason === undefined
        ? null
        : (
          <p class="note">
            <Line value={textOf(reason)} charactersMax={400} />
          </p>
        )}
      {body === undefined
        ? decision.question === undefined
          ? (
            <p class="note">
              The body stands in the intent: <a href={path}>read it</a>
            </p>
          )
          : <Start name="question; no body was made" text={textOf(decision.question)} path={path} />
        : (
          <Start
            name={decision.verdict === "allow" ? "body, as sent" : "body, never sent"}
            text={body}
            path={path}
          />
        )}
      {sha256 === undefined ? null : (
        <p class="hash">
          sha256 <code>{word(sha256)}</code>
        </p>
      )}
      {answer === undefined
        ? null
        : <Start name="answer, written elsewhere" text={textOf(answer)} path={path} />}
    </article>
  );
}

function Start({ name, text, path }: { name: string; text: string; path: string }) {
  const first = beginning(text, previewBytesMax);
  return (
    <details id={`${path.split("/").pop()}-${name.slice(0, 8).replaceAll(/\W/g, "")}`}>
      <summary>{name}, {number(bytesOf(text))} bytes</summary>
      <Block value={first} kind="exact" />
      {first.length === text.length ? null : (
        <p class="note">
          <a href={path}>All of it</a>
        </p>
      )}
    </details>
  );
}

function Verdict({ decision, when }: { decision: ShownRecord; when: Child }) {
  const { tool, verdict, code, cause, outcome, status, call, seq } = decision;
  const because = [code, cause].filter((part) => part !== undefined).map(word).join(", ");
  return (
    <p class="card-head">
      <State word={word(verdict)} />
      <b>{word(tool)}</b>
      {because === "" ? null : <b class="code">{because}</b>}
      {outcome === undefined ? null : <State word={word(outcome)} />}
      {status === undefined ? null : <span>HTTP {word(status)}</span>}
      <span>call {word(call)}</span>
      {when}
      <span>record {word(seq)}</span>
    </p>
  );
}

export const consultPage: Page = {
  path: "/consults/:seq",
  section: "Consults",
  everyMs: 60_000,
  async load(context) {
    const { sources, params, query, base, times } = context;
    const seq = positive(params.seq);
    const decision = seq === undefined ? undefined : await sources.record(seq);
    if (decision === undefined || decision.kind !== "decision") {
      return {
        title: "No such decision",
        parts: [{ id: "consult", node: <h1>No such decision</h1> }],
        httpStatus: 404,
      };
    }
    const intent = typeof decision.intent === "number" ? await sources.record(decision.intent) : undefined;
    const href = (part: number) => `${base}/consults/${seq}?part=${part}`;
    const sha256 = decision.bodySha256 ?? intent?.bodySha256;
    const node = (
      <>
        <p class="crumbs">
          <a href={base + sectionPath("Consults")}>Consults</a>
        </p>
        <h1>Decision {word(decision.seq)}</h1>
        <Verdict decision={decision} when={<Time times={times} at={decision.time} />} />
        <dl class="facts">
          <dt>Session</dt>
          <dd>
            <SessionLink base={base} session={textOf(decision.session)} />
          </dd>
          <dt>Label</dt>
          <dd>
            <Label value={decision.label} />
          </dd>
          {decision.grant === undefined ? null : (
            <>
              <dt>Grant</dt>
              <dd>{word(decision.grant)} of grants.toml</dd>
            </>
          )}
          {decision.reason === undefined ? null : (
            <>
              <dt>{decision.verdict === "deny" ? "It would have taken" : "Remark"}</dt>
              <dd>
                <Line
                  value={decision.verdict === "deny" ? wouldHaveTaken(decision) : textOf(decision.reason)}
                  charactersMax={600}
                />
              </dd>
            </>
          )}
          {typeof decision.elapsedMs !== "number" ? null : (
            <>
              <dt>Took</dt>
              <dd>{lasted(decision.elapsedMs)}</dd>
            </>
          )}
          {decision.answerLabel === undefined ? null : (
            <>
              <dt>Label of the answer</dt>
              <dd>
                <Label value={decision.answerLabel} />
              </dd>
            </>
          )}
          {intent === undefined ? null : (
            <>
              <dt>Intent</dt>
              <dd>
                <a href={`${base}/record/${word(intent.seq)}`}>record {word(intent.seq)}</a>, on disk before
                anything was sent
              </dd>
            </>
          )}
          {sha256 === undefined ? null : (
            <>
              <dt>SHA-256 of the body</dt>
              <dd>
                <code class="take">{word(sha256)}</code>
              </dd>
            </>
          )}
        </dl>
        <Fields pages={fieldPages(fieldsOf(decision, intent))} part={positive(query.part) ?? 1} href={href} />
      </>
    );
    return { title: `Decision ${seq}`, parts: [{ id: "consult", node }] };
  },
};

function fieldsOf(decision: ShownRecord, intent: ShownRecord | undefined): Field[] {
  const body = bodyOf(decision, intent);
  const fields: Field[] = [];
  if (decision.question !== undefined) {
    fields.push({ name: "Question; no body was made", text: textOf(decision.question), kind: "prose" });
  }
  if (body !== undefined) {
    const name = decision.verdict === "allow"
      ? "The exact body that was sent"
      : "The exact body, which was never sent";
    fields.push({ name, text: body, kind: "exact" });
    const question = questionOf(body);
    if (question !== undefined) {
      fields.push({ name: "Its text, as the other side reads it", text: question, kind: "prose" });
    }
  }
  if (decision.answer !== undefined) {
    fields.push({
      name: "The answer, as the outside wrote it",
      text: textOf(decision.answer),
      kind: "prose",
    });
  }
  return fields;
}

/** What a refused call lacked, in the words that brokerd recorded for the owner. */
function wouldHaveTaken({ code, reason }: ShownRecord): string {
  const text = textOf(reason);
  if (text === "the owner's decision") return "your approval; it was denied";
  if (code === "ApprovalDenied" || code === "ApprovalExpired") return `your approval: ${text}`;
  if (code === "invalid-arguments") return `other arguments: ${text}`;
  return text.replace(/^lacks /, "");
}

/** The text of the one message in a consult's body, for reading; the bytes above it are what counts. */
export function questionOf(body: string): string | undefined {
  const messages = parseJsonObject(body)?.messages;
  if (!Array.isArray(messages)) return undefined;
  const texts = messages.flatMap((message: unknown) =>
    typeof message === "object" && message !== null && "content" in message &&
      typeof message.content === "string"
      ? [message.content]
      : []
  );
  return texts.length === 0 ? undefined : texts.join("\n\n");
}

function bodyOf(decision: ShownRecord, intent: ShownRecord | undefined): string | undefined {
  const body = decision.body ?? intent?.body;
  return typeof body === "string" ? body : undefined;
}

function Label({ value }: { value: unknown }) {
  const label = labelSchema.safeParse(value);
  return label.success ? <LabelChip label={label.data} /> : null;
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value ?? null);
}

function word(value: unknown): string {
  return textOf(value).replaceAll(/[^\w .:-]/g, "?").slice(0, 64);
}
