// *Sessions*: all of them as trees, those that changed last first, a page at a time.

import type { Child } from "hono/jsx";
import type { SessionListRow } from "../../../core/protocol/loop.ts";
import { Cell, Empty, fitting, partOf } from "../layout.tsx";
import { LabelChip, Line, number, Pager, percent, State, Time, type Times } from "../text.tsx";
import { type Page, type PageContext, sectionPath } from "../view.ts";
import { SessionLink } from "./now.tsx";

/** Roots on one page, and the children shown below each. */
const rootsShown = 15;
const childrenShown = 6;
const depthMax = 4;
/** Bytes of all rows. */
const rowsBytesMax = 85_000;

export const sessionsPage: Page = {
  path: "/sessions",
  section: "Sessions",
  everyMs: 2_000,
  async load(context) {
    return {
      title: "Sessions",
      parts: await Promise.all([
        { id: "sessions-head", node: <h1>Sessions</h1> },
        partOf("sessions-list", () => list(context)),
      ]),
    };
  },
};

async function list(context: PageContext) {
  const { sources, query, base, times } = context;
  const page = await sources.sessions({
    limit: rootsShown,
    parent: "",
    ...(query.after === undefined ? {} : { after: query.after }),
  });
  if (page.sessions.length === 0) return <Empty>No session yet. One begins with: deno task chat</Empty>;
  const trees = await Promise.all(page.sessions.map((root) => treeRows([root], context)));
  const shown = fitting(
    trees,
    rowsBytesMax,
    (tree) => (
      <>{fitting(tree, rowsBytesMax, (row) => <SessionTableRow {...row} base={base} times={times} />)}</>
    ),
  );
  // Where the page has no room for all, the next begins behind the last root that is shown.
  const after = shown.length < trees.length ? page.sessions[shown.length - 1].session : page.after;
  return (
    <>
      <SessionTable rows={shown} />
      <Pager
        older={after === undefined ? undefined : `${base}${sectionPath("Sessions")}?after=${after}`}
        newest={query.after === undefined ? undefined : `${base}${sectionPath("Sessions")}`}
        olderText="Earlier sessions"
      />
    </>
  );
}

export interface TreeRow {
  readonly row: SessionListRow;
  readonly depth: number;
  /** Children that are not shown here. */
  readonly more: number;
}

/** The sessions and what is below them, depth first, as far as the page has room. */
export async function treeRows(
  roots: readonly SessionListRow[],
  context: PageContext,
  depth = 0,
): Promise<TreeRow[]> {
  const trees = await Promise.all(roots.map(async (row): Promise<TreeRow[]> => {
    if (row.children === 0 || depth === depthMax) return [{ row, depth, more: row.children }];
    const { sessions } = await context.sources.sessions({ limit: childrenShown, parent: row.session });
    const more = Math.max(0, row.children - sessions.length);
    return [{ row, depth, more }, ...await treeRows(sessions, context, depth + 1)];
  }));
  return trees.flat();
}

/** Rows are made one by one, so that whoever shows them can stop where a page is full. */
export function SessionTable({ rows }: { rows: Child }) {
  return (
    <table class="tree">
      <thead>
        <tr>
          <th scope="col">Session</th>
          <th scope="col">State</th>
          <th scope="col">Label</th>
          <th scope="col" class="number">Slot</th>
          <th scope="col" class="number">Turns</th>
          <th scope="col" class="number">Prompt kept</th>
          <th scope="col" class="number">Tokens</th>
          <th scope="col">Last change</th>
        </tr>
      </thead>
      <tbody>{rows}</tbody>
    </table>
  );
}

export function SessionTableRow({ row, depth, more, base, times }: TreeRow & { base: string; times: Times }) {
  const { session, title, status, slot, summary, changed } = row;
  const unread = "…";
  return (
    <tr class={`depth${Math.min(depth, 4)}`}>
      <Cell name="Session" kind="wide">
        <SessionLink base={base} session={session} />
        <p class="title">
          {title === "" ? "nothing said yet" : <Line value={title} charactersMax={100} />}
          {more === 0 ? null : (
            <>
              {" "}
              <a href={`${base}/sessions/${session}`}>
                {more === 1 ? "1 more child" : `${number(more)} more children`}
              </a>
            </>
          )}
        </p>
      </Cell>
      <Cell name="State">{status === null ? unread : <State word={status} />}</Cell>
      <Cell name="Label">{summary === null ? unread : <LabelChip label={summary.label} />}</Cell>
      <Cell name="Slot" kind="number">{slot}</Cell>
      <Cell name="Turns" kind="number">{summary === null ? unread : number(summary.turns)}</Cell>
      <Cell name="Prompt kept" kind="number">
        {summary === null ? unread : summary.cachedShare === null ? "–" : percent(summary.cachedShare)}
      </Cell>
      <Cell name="Tokens" kind="number">
        {summary === null ? unread : number(summary.usage.promptTokens + summary.usage.completionTokens)}
      </Cell>
      <Cell name="Last change">
        <Time times={times} at={changed} />
      </Cell>
    </tr>
  );
}
