// The document around every page: head, navigation, the parts in their order. No script and no style stands inline, so that the policy the
// server sends can forbid both.

import { raw } from "hono/html";
import type { Child } from "hono/jsx";
import { utf8Length } from "../../core/text.ts";
import type { Notice } from "./access.ts";
import { Unavailable } from "./sources.ts";
import { Line, number } from "./text.tsx";
import { type Part, type Section, sectionPath, sections, type View } from "./view.ts";

export const assetPaths = { style: "/console.css", script: "/console.js", icon: "/icon.svg" } as const;

/** Asks for this console's own, whatever a browser kept of one that ran here before. */
const assetVersion = Date.now().toString(36);

export function html(node: Child): string {
  return String(<>{node}</>);
}

/** The same markup for the page and for a live change of it. */
export function partHtml(part: Part): string {
  return html(<Section part={part} />);
}

export interface DocumentOptions {
  readonly view: View;
  readonly section: Section;
  readonly base: string;
  /** Path and query of the page, for its live changes. */
  readonly at: string;
  readonly waiting: number;
  readonly notice: Notice | undefined;
}

export function documentHtml({ view, section, base, at, waiting, notice }: DocumentOptions): string {
  return "<!doctype html>" + html(
    <html lang="en">
      <Head title={`${view.title} – Boxmaker`} script />
      <body data-live={`${base}/live?at=${encodeURIComponent(at)}`}>
        <a class="skip" href="#content">To the content</a>
        <header class="top">
          <p class="brand">Boxmaker</p>
          <nav aria-label="Pages of the console">
            <ul>
              {sections.map((name) => (
                <li>
                  <a
                    href={base + sectionPath(name)}
                    aria-current={name === section ? "page" : undefined}
                  >
                    {name}
                    {name === "Approvals" ? <Waiting count={waiting} /> : null}
                  </a>
                </li>
              ))}
            </ul>
          </nav>
          <p class="live" role="status" id="live-state" data-state="off">not live</p>
        </header>
        <main id="content" tabindex={-1}>
          {notice === undefined ? null : <p class={`notice ${notice.tone}`} role="status">{notice.text}</p>}
          {view.parts.map((part) => <Section key={part.id} part={part} />)}
        </main>
      </body>
    </html>,
  );
}

function Waiting({ count }: { count: number }) {
  return (
    <span class="badge" id="waiting" data-count={count} hidden={count === 0}>
      <span class="hidden">, waiting:</span> {count}
    </span>
  );
}

function Section({ part: { id, node } }: { part: Part }) {
  return <section class="part" id={id} data-part="">{node}</section>;
}

/** A page of one sentence, for whoever did not enter. */
export function plainDocument(
  title: string,
  text: string,
  more?: { to: string; text: string; soon?: boolean },
): string {
  return "<!doctype html>" + html(
    <html lang="en">
      <Head title={title} next={more?.soon ? more.to : undefined} />
      <body class="alone">
        <main id="content">
          <h1>{title}</h1>
          <p>{text}</p>
          {more === undefined ? null : (
            <p>
              <a href={more.to}>{more.text}</a>
            </p>
          )}
        </main>
      </body>
    </html>,
  );
}

function Head({ title, script = false, next }: { title: string; script?: boolean; next?: string }) {
  return (
    <head>
      <meta charset="utf-8" />
      <title>{title}</title>
      <meta name="viewport" content="width=device-width, initial-scale=1" />
      <meta name="color-scheme" content="light dark" />
      <link rel="icon" href={`${assetPaths.icon}?${assetVersion}`} type="image/svg+xml" />
      <link rel="stylesheet" href={`${assetPaths.style}?${assetVersion}`} />
      {next === undefined ? null : <meta http-equiv="refresh" content={`0;url=${next}`} />}
      {script ? <script src={`${assetPaths.script}?${assetVersion}`} defer></script> : null}
    </head>
  );
}

/** What stands in the place of something that could not be asked for. */
export function Problem({ text }: { text: string }) {
  return (
    <p class="notice bad">
      <Line value={text} charactersMax={600} />
    </p>
  );
}

/**
 * As many of the rows, from the first on, as weigh no more than `bytesMax` rendered; one at least. What a row weighs is the text's choice, and
 * texts are hostile: counting rows bounds no page.
 */
export function fitting<Row>(rows: readonly Row[], bytesMax: number, render: (row: Row) => Child): Child[] {
  const nodes: Child[] = [];
  let bytes = 0;
  for (const row of rows) {
    const text = html(render(row));
    bytes += utf8Length(text);
    if (bytes > bytesMax && nodes.length > 0) break;
    nodes.push(raw(text));
  }
  return nodes;
}

export function Empty({ children }: { children?: Child }) {
  return <p class="empty">{children}</p>;
}

/** The node that `make` gives, or in its place what stood in the way: one role that is down takes no whole page with it. */
export async function partOf(id: string, make: () => Promise<Child>): Promise<Part> {
  try {
    return { id, node: await make() };
  } catch (error) {
    if (!(error instanceof Unavailable)) throw error;
    return { id, node: <Problem text={error.message} /> };
  }
}

/** A table whose rows are cut where it would weigh too much, and which says how many it leaves out. */
export function Table<Row>({ columns, numbers = [], rows, bytesMax, kind, row }: {
  columns: readonly string[];
  /** Those that hold numbers. */
  numbers?: readonly string[];
  rows: readonly Row[];
  bytesMax: number;
  kind?: string;
  row: (row: Row) => Child;
}) {
  const shown = fitting(rows, bytesMax, row);
  return (
    <>
      <table class={kind}>
        <thead>
          <tr>
            {columns.map((name) => (
              <th scope="col" class={numbers.includes(name) ? "number" : undefined}>{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>{shown}</tbody>
      </table>
      {shown.length === rows.length
        ? null
        : <p class="note">{number(rows.length - shown.length)} more are not shown.</p>}
    </>
  );
}

/** A cell of a table that becomes a line of its own, with its column's name, where the page is narrow. */
export function Cell({ name, kind, children }: { name: string; kind?: "number" | "wide"; children?: Child }) {
  return <td data-name={name} class={kind}>{children}</td>;
}
