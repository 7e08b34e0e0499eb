// The table of the console's pages. A page more is a row more.

import { approvalPage, approvalsPage } from "./pages/approvals.tsx";
import { consultPage, consultsPage } from "./pages/consults.tsx";
import { nowPage } from "./pages/now.tsx";
import { auditRecordPage, recordPage } from "./pages/record.tsx";
import { rolesPage } from "./pages/roles.tsx";
import { sessionPage, sessionRecordPage } from "./pages/session.tsx";
import { sessionsPage } from "./pages/sessions.tsx";
import type { Page } from "./view.ts";

export const pages: readonly Page[] = [
  nowPage,
  sessionsPage,
  sessionPage,
  sessionRecordPage,
  consultsPage,
  consultPage,
  approvalsPage,
  approvalPage,
  recordPage,
  auditRecordPage,
  rolesPage,
];

export interface Found {
  readonly page: Page;
  readonly params: Readonly<Record<string, string>>;
}

/** The page of a path below the base. */
export function findPage(path: string): Found | undefined {
  for (const page of pages) {
    const params = match(page.path, path);
    if (params !== undefined) return { page, params };
  }
  return undefined;
}

function match(pattern: string, path: string): Record<string, string> | undefined {
  const wanted = pattern.split("/");
  const given = path.split("/");
  if (wanted.length !== given.length) return undefined;
  const params: Record<string, string> = {};
  for (const [at, part] of wanted.entries()) {
    if (part.startsWith(":")) {
      const value = decoded(given[at]);
      if (value === undefined || value === "") return undefined;
      params[part.slice(1)] = value;
    } else if (part !== given[at]) return undefined;
  }
  return params;
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
