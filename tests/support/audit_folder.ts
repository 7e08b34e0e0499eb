// An audit folder for one test: written by the real writer, then changed as the test likes.

import { AuditLog, type AuditLogOptions } from "../../brokerd/audit_log.ts";
import { Fold } from "../../brokerd/fold.ts";
import type { NewAuditRecord } from "../../core/audit/record.ts";
import { sha256 } from "../../core/audit/chain.ts";
import { listSegments } from "../../core/audit/segments.ts";
import type { SessionId } from "../../core/ids.ts";
import { fakeClock } from "./fake_clock.ts";

export interface AuditFolder extends AsyncDisposable {
  readonly dir: string;
  open(options?: Partial<AuditLogOptions>): Promise<{ log: AuditLog; fold: Fold }>;
  /** Whole lines of the last segment, without newlines. */
  lines(): Promise<string[]>;
  /** Puts exactly these bytes in place of the last segment. */
  rewrite(change: (bytes: Uint8Array) => Uint8Array | string): Promise<void>;
}

export async function auditFolder(): Promise<AuditFolder> {
  const dir = await Deno.makeTempDir({ prefix: "bx-audit-" });
  const last = async () => (await listSegments(dir)).at(-1)!.path;
  return {
    dir,
    async open(options = {}) {
      const fold = new Fold();
      return { fold, log: await AuditLog.open({ dir, clock: fakeClock(), fold, ...options }) };
    },
    lines: async () => (await Deno.readTextFile(await last())).split("\n").slice(0, -1),
    async rewrite(change) {
      const bytes = change(await Deno.readFile(await last()));
      await Deno.writeFile(await last(), typeof bytes === "string" ? new TextEncoder().encode(bytes) : bytes);
    },
    [Symbol.asyncDispose]: () => Deno.remove(dir, { recursive: true }),
  };
}

/** A folder whose log holds `count` decisions after its ledger record, closed in order. */
export async function writtenFolder(
  count: number,
  options: Partial<AuditLogOptions> = {},
): Promise<AuditFolder> {
  const folder = await auditFolder();
  const { log } = await folder.open(options);
  for (let call = 1; call <= count; call++) {
    log.append(denial("chat-a", call));
    await log.commit();
  }
  await log.close();
  return folder;
}

export function denial(session: string, call: number): NewAuditRecord {
  const body = `{"question":"nº ${call}"}`;
  return {
    kind: "decision",
    session: session as SessionId,
    call,
    tool: "consult",
    label: { class: "private", untrusted: false },
    verdict: "deny",
    code: "NoGrant",
    body,
    bodySha256: sha256(body),
  };
}
