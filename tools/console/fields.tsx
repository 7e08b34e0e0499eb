// Long texts, whole: every character of a record can be read, and no page of them grows past its bound. A text is cut into pieces and the
// pieces are packed into pages.

import { Block, bytesOf, costOf, number, pieces } from "./text.tsx";

/** Of the texts on one page, written out. */
const pageBytesMax = 60_000;

export interface Field {
  readonly name: string;
  readonly text: string;
  /** Exact texts are shown letter by letter in one width. */
  readonly kind: "prose" | "exact";
}

interface Chunk extends Field {
  readonly piece: number;
  readonly of: number;
}

/** The fields as pages; one page at least. */
export function fieldPages(fields: readonly Field[]): Chunk[][] {
  const pages: Chunk[][] = [[]];
  let room = pageBytesMax;
  for (const field of fields) {
    const cut = pieces(field.text, pageBytesMax);
    for (const [at, text] of cut.entries()) {
      const cost = costOf(text);
      if (cost > room && pages[pages.length - 1].length > 0) {
        pages.push([]);
        room = pageBytesMax;
      }
      pages[pages.length - 1].push({ ...field, text, piece: at + 1, of: cut.length });
      room -= cost;
    }
  }
  return pages;
}

/** One page of fields, with the way to the others. */
export function Fields({ pages, part, href }: {
  pages: readonly Chunk[][];
  part: number;
  href: (part: number) => string;
}) {
  const at = Math.min(Math.max(part, 1), pages.length);
  return (
    <>
      {pages[at - 1].map(({ name, text, kind, piece, of }) => (
        <section class="field">
          <h2>
            {name}{" "}
            <small>
              {of === 1 ? `${number(bytesOf(text))} bytes` : `piece ${piece} of ${of}`}
            </small>
          </h2>
          <Block value={text} kind={kind} />
        </section>
      ))}
      {pages.length === 1 ? null : (
        <nav class="pager" aria-label="Parts">
          <span>Part {at} of {pages.length}</span>
          {at > 1 ? <a href={href(at - 1)} rel="prev">Part before</a> : null}
          {at < pages.length ? <a href={href(at + 1)} rel="next">Next part</a> : null}
        </nav>
      )}
    </>
  );
}
