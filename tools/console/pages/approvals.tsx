// *Approvals*: calls that wait for the owner. A decision is made on exact bytes: the form carries the hash of the body that was shown, and it
// stands behind the last piece of the body, not before. Without --allow-decisions there is no form.

import { raw } from "hono/html";
import { utf8Length } from "../../../core/text.ts";
import type { Approval } from "../../../core/protocol/owner.ts";
import { describeLabel } from "../../../core/labels.ts";
import { Empty, html, partOf } from "../layout.tsx";
import { Block, bytesOf, costOf, LabelChip, number, pieces, Time } from "../text.tsx";
import { type Page, type PageContext, positive, sectionPath } from "../view.ts";
import { questionOf } from "./consults.tsx";
import { SessionLink } from "./now.tsx";

/** Calls on one page, and the bytes that their bodies take together; what has no room is a link away. */
const approvalsShown = 10;
const wholesBytesMax = 48_000;
/** Bytes of a body's text, shown beside the body. */
const questionBytesMax = 14_000;

export const approvalsPage: Page = {
  path: "/approvals",
  section: "Approvals",
  everyMs: 1_000,
  async load(context) {
    return {
      title: "Approvals",
      parts: await Promise.all([
        { id: "approvals-head", node: <Head {...context} /> },
        partOf("approvals-list", () => list(context)),
      ]),
    };
  },
};

function Head({ allowDecisions }: PageContext) {
  return (
    <>
      <h1>Approvals</h1>
      <p class="lead">
        {allowDecisions
          ? "A call goes out only with your word, for exactly these bytes and once."
          : "This console only shows. Decide with deno task bx approvals, or start it with --allow-decisions."}
      </p>
    </>
  );
}

async function list(context: PageContext) {
  const approvals = await context.sources.approvals();
  if (approvals.length === 0) return <Empty>Nothing waits for your approval.</Empty>;
  let room = wholesBytesMax;
  const cards = approvals.slice(0, approvalsShown).map((approval) => {
    const whole = html(<Whole approval={approval} {...context} />);
    const fits = utf8Length(whole) <= room;
    if (fits) room -= utf8Length(whole);
    return (
      <li>
        <article class="card">
          <Facts approval={approval} {...context} />
          {fits ? raw(whole) : (
            <p>
              <a href={`${context.base}/approvals/${encodeURIComponent(approval.id)}`}>
                Read all {number(bytesOf(approval.body))} bytes
              </a>, then decide.
            </p>
          )}
        </article>
      </li>
    );
  });
  return (
    <>
      <ol class="cards">{cards}</ol>
      {approvals.length <= cards.length
        ? null
        : <p class="note">{number(approvals.length - cards.length)} more wait behind these.</p>}
    </>
  );
}

function Facts({ approval, base, times }: PageContext & { approval: Approval }) {
  const { id, tool, session, ancestors, label, grant, call, expiresAt, bodySha256 } = approval;
  return (
    <>
      <h2>
        {tool} <small>{id}</small>
      </h2>
      <dl class="facts">
        <dt>Asked by</dt>
        <dd>
          <SessionLink base={base} session={session} />, call {call}
          {ancestors.map((ancestor) => (
            <>
              {" "}below <SessionLink base={base} session={ancestor} />
            </>
          ))}
        </dd>
        <dt>Label</dt>
        <dd>
          <LabelChip label={label} />
        </dd>
        <dt>Grant</dt>
        <dd>{grant} of grants.toml</dd>
        <dt>Expires</dt>
        <dd>
          <Time times={times} at={expiresAt} />
        </dd>
        <dt>SHA-256</dt>
        <dd>
          <code class="take">{bodySha256}</code>
        </dd>
      </dl>
    </>
  );
}

function Whole({ approval, ...context }: PageContext & { approval: Approval }) {
  const question = questionOf(approval.body);
  return (
    <>
      <h3>The exact body, {number(bytesOf(approval.body))} bytes</h3>
      <Block value={approval.body} kind="exact" />
      {question === undefined || costOf(question) > questionBytesMax
        ? null
        : (
          <details id={`text-${approval.id}`}>
            <summary>Its text, as the other side would read it</summary>
            <Block value={question} />
          </details>
        )}
      <Decide approval={approval} {...context} />
    </>
  );
}

function Decide({ approval, allowDecisions, base, viewer }: PageContext & { approval: Approval }) {
  const { id, tool, session, label, bodySha256 } = approval;
  if (!allowDecisions) {
    return (
      <p class="note">
        To decide: <code class="take">deno task bx approvals approve {id} --body {bodySha256}</code>
      </p>
    );
  }
  const what = `${tool} of ${session} (${describeLabel(label)}), ${id}`;
  return (
    <form class="decide" method="post" action={`${base}/approvals/${encodeURIComponent(id)}`}>
      <input type="hidden" name="formKey" value={viewer.formKey} />
      <input type="hidden" name="bodySha256" value={bodySha256} />
      <button
        type="submit"
        id={`approve-${id}`}
        class="approve"
        name="decision"
        value="approve"
        aria-label={`Approve ${what}`}
      >
        Approve these bytes
      </button>
      <button
        type="submit"
        id={`deny-${id}`}
        class="deny"
        name="decision"
        value="deny"
        aria-label={`Deny ${what}`}
      >
        Deny
      </button>
    </form>
  );
}

export const approvalPage: Page = {
  path: "/approvals/:id",
  section: "Approvals",
  everyMs: 2_000,
  async load(context) {
    const { sources, params, query, base } = context;
    const approval = await sources.approval(params.id);
    if (approval === undefined) {
      const node = (
        <>
          <h1>It does not wait any more</h1>
          <p>
            It was decided, expired, or became void; the record says which, under{" "}
            <a href={base + sectionPath("Consults")}>Consults</a>.
          </p>
        </>
      );
      return { title: "It does not wait any more", parts: [{ id: "approval", node }], httpStatus: 404 };
    }
    const parts = pieces(approval.body);
    const at = Math.min(positive(query.part) ?? 1, parts.length);
    const href = (part: number) => `${base}/approvals/${encodeURIComponent(approval.id)}?part=${part}`;
    const node = (
      <>
        <p class="crumbs">
          <a href={base + sectionPath("Approvals")}>Approvals</a>
        </p>
        <h1>A call that waits</h1>
        <Facts approval={approval} {...context} />
        {parts.length === 1 ? <Whole approval={approval} {...context} /> : (
          <>
            <h3>The exact body, {number(bytesOf(approval.body))} bytes: piece {at} of {parts.length}</h3>
            <Block value={parts[at - 1]} kind="exact" />
            <nav class="pager" aria-label="Pieces">
              {at > 1 ? <a href={href(at - 1)} rel="prev">Piece before</a> : null}
              {at < parts.length
                ? <a href={href(at + 1)} rel="next">Next piece; the decision is behind the last</a>
                : null}
            </nav>
            {at === parts.length ? <Decide approval={approval} {...context} /> : null}
          </>
        )}
      </>
    );
    return { title: `Approval ${approval.id}`, parts: [{ id: "approval", node }] };
  },
};
