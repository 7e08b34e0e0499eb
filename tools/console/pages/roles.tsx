// *Roles*: what each role was granted at its last start, what it used of that, and what it tried and was refused.

import { delay, systemClock } from "../../../core/clock.ts";
import type { RoleReport } from "../../launch/permissions.ts";
import { Cell, Empty, Table } from "../layout.tsx";
import { Line, number, State, Time, type Times } from "../text.tsx";
import type { Page, PageContext } from "../view.ts";

/** Bytes of one role's table; a role has a dozen grants, and denials are counted by kind. */
const tableBytesMax = 40_000;
/** How long a page waits for the first count. */
const firstCountMsMax = 120;

export const rolesPage: Page = {
  path: "/roles",
  section: "Roles",
  everyMs: 2_000,
  async load(context) {
    return { title: "Roles", parts: [{ id: "roles", node: await roles(context) }] };
  },
};

async function roles({ sources, times }: PageContext) {
  if (sources.roles() === undefined) await soon(sources.rolesCounted());
  const counted = sources.roles();
  return (
    <>
      <h1>Roles</h1>
      <p class="lead">
        The walls are Deno's permission flags. A grant that was never used is a finding: the process may do
        more than it needs.
      </p>
      {counted === undefined
        ? <Empty>What the roles used is being counted.</Empty>
        : counted.reports.length === 0
        ? <Empty>No role was ever started in this home.</Empty>
        : (
          <>
            {counted.reports.map((report) => <Role key={report.role} report={report} times={times} />)}
            <p class="note">
              Counted <Time times={times} at={counted.countedAt} />
            </p>
          </>
        )}
    </>
  );
}

/** Resolves with the work, or before it where that takes long. */
async function soon(work: Promise<void>): Promise<void> {
  const done = new AbortController();
  const late = delay(systemClock, firstCountMsMax, done.signal).catch(() => {});
  await Promise.race([work, late]);
  done.abort();
}

function Role({ report, times }: { report: RoleReport; times: Times }) {
  const { role, time, launches, granted, denied } = report;
  const unused = granted.filter(({ count }) => count === 0).length;
  return (
    <section aria-labelledby={`role-${role}`}>
      <h2 id={`role-${role}`}>{role}</h2>
      <p class="facts-line">
        <span>
          started <Time times={times} at={time} />
        </span>
        <span>{number(launches)} {launches === 1 ? "start" : "starts"} counted</span>
        <span>{granted.length} granted, {unused} never used</span>
        {denied.length === 0
          ? <span>nothing was denied</span>
          : <b class="bad">{denied.length} {denied.length === 1 ? "kind" : "kinds"} of attempt denied</b>}
      </p>
      <Table
        columns={["Verdict", "Permission", "To what", "Checks"]}
        numbers={["Checks"]}
        rows={[
          ...denied.map((row) => ({ ...row, verdict: "denied" })),
          ...granted.filter(({ count }) => count === 0).map((row) => ({ ...row, verdict: "never used" })),
          ...granted.filter(({ count }) => count > 0).map((row) => ({ ...row, verdict: "used" })),
        ]}
        bytesMax={tableBytesMax}
        row={({ verdict, permission, value, count }) => (
          <tr>
            <Cell name="Verdict">
              <State word={verdict} />
            </Cell>
            <Cell name="Permission">
              <Line value={permission} charactersMax={40} />
            </Cell>
            <Cell name="To what" kind="wide">
              <code>
                <Line value={value} />
              </code>
            </Cell>
            <Cell name="Checks" kind="number">{number(count)}</Cell>
          </tr>
        )}
      />
    </section>
  );
}
