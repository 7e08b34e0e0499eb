// What a page is before it is sent: a title and parts, each with an id under which a live change of it finds its place. Pages are functions of
// what they were asked and of the sources; nothing here knows HTTP.

import type { Child } from "hono/jsx";
import type { Viewer } from "./access.ts";
import type { Sources } from "./sources.ts";
import type { Times } from "./text.tsx";

export interface Part {
  /** Unique on its page; `[a-z0-9-]`. */
  readonly id: string;
  readonly node: Child;
}

export interface View {
  readonly title: string;
  readonly parts: readonly Part[];
  readonly httpStatus?: 404 | 503;
}

export interface PageContext {
  readonly sources: Sources;
  readonly times: Times;
  /** Before every path of a link. */
  readonly base: string;
  readonly viewer: Viewer;
  /** The owner started the console so that approvals can be decided in it. */
  readonly allowDecisions: boolean;
  readonly params: Readonly<Record<string, string>>;
  readonly query: Readonly<Record<string, string>>;
}

export interface Page {
  /** As hono matches it, below the base. */
  readonly path: string;
  /** The place in the navigation that it belongs to. */
  readonly section: Section;
  /** How often a page that is looked at is made anew. */
  readonly everyMs: number;
  load(context: PageContext): Promise<View>;
}

export const sections = ["Now", "Sessions", "Consults", "Approvals", "Record", "Roles"] as const;
export type Section = typeof sections[number];

export function sectionPath(section: Section): string {
  return `/${section.toLowerCase()}`;
}

/** A positive integer of a query, or undefined. */
export function positive(text: string | undefined): number | undefined {
  return text !== undefined && /^[1-9]\d{0,14}$/.test(text) ? Number(text) : undefined;
}
