// *Sessions*: all of them as trees, those that changed last first, a page at a time.

import type { SessionListRow } from "../../../core/protocol/loop.ts";
import { Cell, Empty, partOf } from "../layout.tsx";
import { LabelChip, Line, number, Pager, percent, State, Time, type Times } from "../text.tsx";
import { type Page, type PageContext, sectionPath } from "../view.ts";
import { SessionLink } from "./now.tsx";

/** Roots on one page, and the children shown below each. */
const rootsShown = 25;
const childrenShown = 6;
const depthMax = 4;
/** Rows of the whole page. */
const rowsMax = 120;

export const sessionsPage: Page = {
  path: "/sessions",
  section: "Sessions",
  everyMs: 2_000,
  async load(context) {
    return {
      title: "Sessions",
      parts: [
        { id: "sessions-head", node: <h1>Sessions</h1> },
        await partOf("sessions-list", () => list(context)),
      ],
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
  const rows: TreeRow[] = [];
  for (const root of page.sessions) await addTree(root, 0, rows, context);
  if (rows.length === 0) return <Empty>No session yet. One begins with: deno task chat</Empty>;
  return (
    <>
      <SessionTable rows={rows} base={base} times={times} />
      <Pager
        older={page.after === undefined ? undefined : `${base}${sectionPath("Sessions")}?after=${page.after}`}
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

/** The session and what is below it, depth first, as far as the page has room. */
export async function addTree(
  row: SessionListRow,
  depth: number,
  rows: TreeRow[],
  context: PageContext,
): Promise<void> {
  if (row.children === 0 || depth === depthMax || rows.length >= rowsMax) {
    rows.push({ row, depth, more: row.children });
    return;
  }
  const { sessions } = await context.sources.sessions({ limit: childrenShown, parent: row.session });
  rows.push({ row, depth, more: Math.max(0, row.children - sessions.length) });
  for (const child of sessions) await addTree(child, depth + 1, rows, context);
}

export function SessionTable(
  { rows, base, times }: { rows: readonly TreeRow[]; base: string; times: Times },
) {
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
      <tbody>
        {rows.map(({ row, depth, more }) => (
          <tr class={`depth${Math.min(depth, 4)}`}>
            <Cell name="Session" kind="wide">
              <SessionLink base={base} session={row.session} />
              <p class="title">
                {row.title === "" ? "nothing said yet" : <Line value={row.title} charactersMax={100} />}
                {more === 0 ? null : (
                  <>
                    {" "}
                    <a href={`${base}/sessions/${row.session}`}>
                      {more === 1 ? "1 more child" : `${number(more)} more children`}
                    </a>
                  </>
                )}
              </p>
            </Cell>
            <Cell name="State">{row.status === null ? "…" : <State word={row.status} />}</Cell>
            <Cell name="Label">{row.summary === null ? "…" : <LabelChip label={row.summary.label} />}</Cell>
            <Cell name="Slot" kind="number">{row.slot}</Cell>
            <Cell name="Turns" kind="number">{row.summary === null ? "…" : number(row.summary.turns)}</Cell>
            <Cell name="Prompt kept" kind="number">
              {row.summary === null
                ? "…"
                : row.summary.cachedShare === null
                ? "–"
                : percent(row.summary.cachedShare)}
            </Cell>
            <Cell name="Tokens" kind="number">
              {row.summary === null
                ? "…"
                : number(row.summary.usage.promptTokens + row.summary.usage.completionTokens)}
            </Cell>
            <Cell name="Last change">
              <Time times={times} at={row.changed} />
            </Cell>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
