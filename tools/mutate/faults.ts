// Deliberate faults, each one line of what brokerd or core must never become, with the tests that are to notice. `find` stands exactly
// once in its file (a test holds that), so a fault that no longer fits the code is noticed as well. Nothing here runs anything.

export interface Fault {
  /** What brokerd would be with it. */
  readonly name: string;
  readonly file: string;
  readonly find: string;
  readonly replace: string;
  /** The narrowest test files that are to fail. */
  readonly tests: readonly string[];
}

const unit = (name: string) => `tests/unit/brokerd/${name}_test.ts`;
const decideTest = unit("decide");
const ledgerTest = unit("ledger");
const callsTest = unit("calls");
const approvalsTest = unit("approvals");
const serverTest = unit("server");
const wireTest = unit("consult_wire");
const logTest = unit("audit_log");
const verifyTest = "tests/unit/audit/verify_test.ts";
const secretsTest = "tests/unit/config/secrets_test.ts";
const tomlTest = "tests/unit/config/roles_toml_test.ts";
const tomlFileTest = "tests/unit/config/toml_file_test.ts";
const durabilityTest = "tests/hostile/durability_test.ts";
const filesTest = "tests/hostile/files_test.ts";
const wordingTest = "tests/hostile/wording_test.ts";

export const faults: readonly Fault[] = [
  // The gate.
  {
    name: "no grant is an allowance",
    file: "brokerd/decide.ts",
    find: "if (matching.length === 0) return noGrant(tool, forTool);",
    replace:
      'if (matching.length === 0) return forTool[0] ? { verdict: "allow", grant: forTool[0] } : noGrant(tool, forTool);',
    tests: [decideTest],
  },
  {
    name: "the sessions of a grant are ignored",
    file: "brokerd/decide.ts",
    find: ": forTool.filter((grant) => matchesSession(grant, session));",
    replace: ": forTool;",
    tests: [decideTest],
  },
  {
    name: "the tool of a grant is ignored",
    file: "brokerd/decide.ts",
    find: "grants.filter((grant) => grant.tool === tool)",
    replace: "grants.filter(() => true)",
    tests: [decideTest, unit("ask_memory")],
  },
  {
    name: "grants are tried from the last to the first",
    file: "brokerd/decide.ts",
    find: "grants.filter((grant) => grant.tool === tool)",
    replace: "grants.filter((grant) => grant.tool === tool).toReversed()",
    tests: [decideTest],
  },
  {
    name: "untrusted is ignored",
    file: "brokerd/grants.ts",
    find: "return !label.untrusted || grant.allowUntrusted;",
    replace: "return true;",
    tests: [decideTest],
  },
  {
    name: "max_taint is compared the other way round",
    file: "brokerd/grants.ts",
    find: "classAtMost(label.class, grant.maxTaint)",
    replace: "classAtMost(grant.maxTaint, label.class)",
    tests: [decideTest],
  },
  {
    name: "a grant is matched against the child's own id, not the root's",
    file: "brokerd/grants.ts",
    find: "const root = rootSessionId(session);",
    replace: "const root = session;",
    tests: [decideTest],
  },
  {
    name: "the daily budget is ignored",
    file: "brokerd/decide.ts",
    find: "perDay !== undefined && question.spent(admitting) >= perDay",
    replace: "perDay !== undefined && perDay < 0",
    tests: [decideTest],
  },
  {
    name: "the daily budget is one too large",
    file: "brokerd/decide.ts",
    find: "question.spent(admitting) >= perDay",
    replace: "question.spent(admitting) > perDay",
    tests: [decideTest],
  },
  {
    name: "what is sent is not counted against the budget",
    file: "brokerd/fold.ts",
    find: "else entry.count++;",
    replace: "",
    tests: [callsTest],
  },
  {
    name: "mode ask is taken as allow",
    file: "brokerd/decide.ts",
    find: "return { verdict: admitting.mode, grant: admitting };",
    replace: 'return { verdict: "allow", grant: admitting };',
    tests: [decideTest],
  },
  {
    name: "the answer is not labelled untrusted",
    file: "brokerd/grants.ts",
    find: "return { class: grant.resultClass, untrusted: grant.untrusted };",
    replace: "return { class: grant.resultClass, untrusted: false };",
    tests: [wireTest],
  },
  {
    name: "an answer has no class of its own",
    file: "brokerd/grants.ts",
    find: "return { class: grant.resultClass, untrusted: grant.untrusted };",
    replace: 'return { class: "public", untrusted: grant.untrusted };',
    tests: [wireTest],
  },

  // Labels.
  {
    name: "a join takes the lower class",
    file: "core/labels.ts",
    find: "class: classAtMost(a.class, b.class) ? b.class : a.class",
    replace: "class: classAtMost(a.class, b.class) ? a.class : b.class",
    tests: ["tests/unit/core/labels_test.ts"],
  },
  {
    name: "a join is untrusted only if both are",
    file: "core/labels.ts",
    find: "untrusted: a.untrusted || b.untrusted }",
    replace: "untrusted: a.untrusted && b.untrusted }",
    tests: ["tests/unit/core/labels_test.ts"],
  },
  {
    name: "a claim may lower what the ledger knows",
    file: "brokerd/ledger.ts",
    find: "const joined = joinLabels(before ?? this.#birthLabel(session), stated);",
    replace: "const joined = before === undefined ? joinLabels(this.#birthLabel(session), stated) : stated;",
    tests: [ledgerTest],
  },
  {
    name: "a label record replaces the label",
    file: "brokerd/fold.ts",
    find:
      "#raise(session: SessionId, label: Label): void {\n    const entry = this.#entry(session);\n    entry.label = joinLabels(entry.label, label);",
    replace:
      "#raise(session: SessionId, label: Label): void {\n    const entry = this.#entry(session);\n    entry.label = label.untrusted ? label : { ...label };\n    if (label.class === 'private') entry.label = { class: 'public', untrusted: false };",
    tests: [ledgerTest],
  },
  {
    name: "ancestors are not raised with a child",
    file: "brokerd/ledger.ts",
    find: "for (const ancestor of ancestorSessionIds(session).reverse()) {",
    replace: "for (const ancestor of ancestorSessionIds(session).slice(0, 0)) {",
    tests: [ledgerTest],
  },
  {
    name: "a child is born public whatever its parent is",
    file: "brokerd/ledger.ts",
    find: ": this.#fold.label(parent);",
    replace: ": this.#fold.label(parent) && publicTrusted;",
    tests: [ledgerTest],
  },
  {
    name: "a child of an unknown parent is accepted",
    file: "brokerd/ledger.ts",
    find: ": this.#fold.label(parent);",
    replace: ": this.#fold.label(parent) ?? publicTrusted;",
    tests: [ledgerTest],
  },
  {
    name: "a sub- id that names no parent is a root of its own",
    file: "brokerd/ledger.ts",
    find: '=== "malformed"\n      ? undefined',
    replace: '=== "malformed"\n      ? publicTrusted',
    tests: [ledgerTest, callsTest],
  },
  {
    name: "an answer does not raise its session",
    file: "brokerd/calls.ts",
    find: "this.#ledger.raise(subject.session, carried);",
    replace: "",
    tests: [wireTest],
  },
  {
    name: "an answer is released before the raised label is on the disk",
    file: "brokerd/calls.ts",
    find: "this.#ledger.raise(subject.session, carried);\n      await this.#log.commit();",
    replace: "this.#ledger.raise(subject.session, carried);",
    tests: [durabilityTest],
  },
  {
    name: "retiring a session leaves its children their labels",
    file: "brokerd/fold.ts",
    find: "for (const id of this.family(record.session)) this.#sessions.delete(id);",
    replace: "this.#sessions.delete(record.session);",
    tests: [serverTest],
  },

  // One call, once.
  {
    name: "the same call is decided again after it was decided",
    file: "brokerd/calls.ts",
    find: "this.#running.has(key) || this.#fold.isDecided(session, call)",
    replace: "this.#running.has(key)",
    tests: [callsTest],
  },
  {
    name: "the same call runs twice while it is in flight",
    file: "brokerd/calls.ts",
    find: "this.#running.has(key) || this.#fold.isDecided(session, call)",
    replace: "this.#fold.isDecided(session, call)",
    tests: [callsTest],
  },
  {
    name: "decided calls are forgotten with the process",
    file: "brokerd/fold.ts",
    find: "for (const [from, to] of calls) entry.calls.addRange(from, to);",
    replace: "",
    tests: [callsTest, serverTest],
  },
  {
    name: "what was open at the end is not closed at the start",
    file: "brokerd/broker.ts",
    find: "await calls.closeOpen();",
    replace: "",
    tests: [callsTest],
  },
  {
    name: "any number of calls may wait at once",
    file: "brokerd/calls.ts",
    find: "if (this.#running.size >= pendingCallsMax)",
    replace: "if (this.#running.size < 0)",
    tests: ["tests/hostile/callers_test.ts"],
  },
  {
    name: "the request is sent before its intent is on the disk",
    file: "brokerd/calls.ts",
    find: "await this.#log.commit();\n\n    const began",
    replace: "this.#log.commit().catch(() => {});\n\n    const began",
    tests: [durabilityTest],
  },
  {
    name: "the bytes that are sent are made anew from the body",
    file: "brokerd/calls.ts",
    find: "const bytes = new TextEncoder().encode(body);",
    replace: "const bytes = new TextEncoder().encode(JSON.stringify(JSON.parse(body), null, 1));",
    tests: [wireTest, unit("odd_questions")],
  },
  {
    name: "the question is normalised on its way",
    file: "brokerd/calls.ts",
    find: "const body = endpoint.body(question);",
    replace: "const body = endpoint.body(question.normalize());",
    tests: [unit("odd_questions")],
  },
  {
    name: "a denial does not record what would have left",
    file: "brokerd/calls.ts",
    find: 'if (verdict.verdict === "deny") return await this.#deny(subject, verdict, exact);',
    replace: 'if (verdict.verdict === "deny") return await this.#deny(subject, verdict, {});',
    tests: [callsTest, decideTest, "tests/given/t06_consult_deny_test.ts"],
  },

  // The owner's approval.
  {
    name: "an approval binds whatever hash it names",
    file: "brokerd/approvals.ts",
    find: "if (pending.asked.bodySha256 !== bodySha256) {",
    replace: "if (pending.asked.bodySha256.length !== bodySha256.length) {",
    tests: [approvalsTest],
  },
  {
    name: "a void approval counts as approved",
    file: "brokerd/calls.ts",
    find: 'if (end.state !== "approved") return await denied',
    replace: 'if (end.state === "denied") return await denied',
    tests: [approvalsTest],
  },
  {
    name: "an approval never runs out",
    file: "brokerd/approvals.ts",
    find: "if (leftMs <= 0) return pending.end(",
    replace: "if (leftMs <= -600_000) return pending.end(",
    tests: [approvalsTest],
  },
  {
    name: "one id stands for every approval",
    file: "brokerd/approvals.ts",
    find: "const id = `a${seq}`;",
    replace: "const id = `a${seq - seq}`;",
    tests: [approvalsTest],
  },
  {
    name: "what was approved is not decided again before it is sent",
    file: "brokerd/calls.ts",
    find: "return stands\n      ? undefined",
    replace: "return stands || !stands\n      ? undefined",
    tests: [approvalsTest],
  },
  {
    name: "a raise of the session leaves its approval standing",
    file: "brokerd/broker.ts",
    find: 'approvals.void((asked) => asked.session === session, "the session\'s label rose")',
    replace: 'approvals.void(() => false, "")',
    tests: [approvalsTest],
  },
  {
    name: "a changed grant leaves its approvals standing",
    file: "brokerd/broker.ts",
    find: "!now.has(grantContent(grant))",
    replace: "now.size < 0",
    tests: [approvalsTest],
  },
  {
    name: "loopd may read and decide approvals",
    file: "brokerd/server.ts",
    find: 'path: "/v1/approvals/:id",\n    callers: ["owner"],',
    replace: 'path: "/v1/approvals/:id",\n    callers: ["owner", "loopd"],',
    tests: [approvalsTest],
  },

  // What leaves, and what comes back.
  {
    name: "a redirect is followed",
    file: "brokerd/sender.ts",
    find: 'return settle({ outcome: "http", status, reason: `the reply has HTTP status ${status}` });',
    replace:
      'return reply.headers.location === undefined ? settle({ outcome: "http", status, reason: `the reply has HTTP status ${status}` }) : void post({ ...request, url: new URL(reply.headers.location, url).href }).then(settle);',
    tests: [wireTest],
  },
  {
    name: "a broken request is tried a second time",
    file: "brokerd/sender.ts",
    find: 'outgoing.on("error", (error: Error & { code?: string }) => settle(failure(error, connected)));',
    replace:
      'outgoing.on("error", (error: Error & { code?: string }) => "again" in request ? settle(failure(error, connected)) : void post({ ...request, again: true } as Post).then(settle));',
    tests: [wireTest],
  },
  {
    name: "a header is added to the request",
    file: "brokerd/sender.ts",
    find: '"user-agent": "boxmaker",',
    replace: '"user-agent": "boxmaker",\n        "x-platform": Deno.build.target,',
    tests: [wireTest],
  },
  {
    name: "a reply of any size is read",
    file: "brokerd/sender.ts",
    find: "if (length > request.replyBytesMax) return unusable(overSize);",
    replace: "",
    tests: [wireTest],
  },
  {
    name: "an encoded reply is let through",
    file: "brokerd/sender.ts",
    find: 'encoding !== undefined && encoding.trim().toLowerCase() !== "identity"',
    replace: 'encoding === "never"',
    tests: [wireTest],
  },
  {
    name: "a second reply behind the first is ignored",
    file: "brokerd/sender.ts",
    find: "end !== undefined && end < whole.length",
    replace: "end !== undefined && end < 0",
    tests: [wireTest],
  },
  {
    name: "the total time is one millisecond short",
    file: "brokerd/sender.ts",
    find: "request.timeoutMs,\n      () => settle",
    replace: "request.timeoutMs - 1,\n      () => settle",
    tests: [wireTest],
  },
  {
    name: "the key stands in the record of a refused request",
    file: "brokerd/sender.ts",
    find: "reason: `the reply has HTTP status ${status}` });",
    replace: "reason: `the reply has HTTP status ${status} (${request.bearer})` });",
    tests: [wireTest],
  },
  {
    name: "the answer is not neutralised",
    file: "brokerd/reply.ts",
    find: "capText(neutralise(content.toWellFormed()), answerCharactersMax)",
    replace: "capText(content.toWellFormed(), answerCharactersMax)",
    tests: [wireTest],
  },
  {
    name: "the answer is not capped",
    file: "brokerd/reply.ts",
    find: "capText(neutralise(content.toWellFormed()), answerCharactersMax)",
    replace: "neutralise(content.toWellFormed())",
    tests: [wireTest],
  },
  {
    name: "the question itself is taken as an answer",
    file: "brokerd/reply.ts",
    find: "if (content.trim() === asked.question.trim())",
    replace: "if (content === undefined)",
    tests: [wireTest],
  },
  {
    name: "an answer may repeat the key",
    file: "brokerd/reply.ts",
    find: "bearer.length >= bearerCharactersMin && text.includes(bearer)",
    replace: "bearer.length < 0 && text.includes(bearer)",
    tests: ["tests/hostile/repeated_key_test.ts"],
  },
  {
    name: "an answer carries no mark of the outside",
    file: "brokerd/calls.ts",
    find: "text: `${tool.answerLine}\\n${answer}`",
    replace: "text: answer",
    tests: [wireTest],
  },
  {
    name: "a question with half a character is sent",
    file: "brokerd/toolset.ts",
    find: "if (!question.isWellFormed())",
    replace: "if (question === undefined)",
    tests: [callsTest, "tests/given/t09_unknown_field_test.ts", unit("odd_questions")],
  },
  {
    name: "a question of any size is sent",
    file: "brokerd/toolset.ts",
    find: "if (utf8Length(question) > questionBytesMax) {",
    replace: "if (utf8Length(question) < 0) {",
    tests: [callsTest, unit("odd_questions")],
  },
  {
    name: "an unknown argument is passed over",
    file: "brokerd/toolset.ts",
    find: "const questionSchema = z.strictObject({",
    replace: "const questionSchema = z.object({",
    tests: [callsTest],
  },
  {
    name: "one key more stands in the body",
    file: "brokerd/toolset.ts",
    find: 'messages: [{ role: "user", content: question }],',
    replace: 'messages: [{ role: "user", content: question }],\n            stream: false,',
    tests: [unit("odd_questions"), serverTest],
  },

  // What the owner wrote.
  {
    name: "a temperature above 0.6 is accepted",
    file: "core/config/brokerd_toml.ts",
    find: "fraction(0, consultTemperatureMax).default",
    replace: "fraction(0, 2).default",
    tests: [tomlTest],
  },
  {
    name: "a consult may go to another host without TLS",
    file: "core/config/brokerd_toml.ts",
    find: 'url: address({ elsewhere: "https", query: true }, addressWanted)',
    replace: 'url: address({ elsewhere: "http-or-https", query: true }, addressWanted)',
    tests: [tomlTest],
  },
  {
    name: "an unknown key of a grant is passed over",
    file: "core/config/grants_toml.ts",
    find: "const grantTable = z.strictObject({",
    replace: "const grantTable = z.object({",
    tests: [tomlFileTest],
  },
  {
    name: "a grant admits untrusted sessions by default",
    file: "core/config/grants_toml.ts",
    find: "allow_untrusted: boolean().default(false)",
    replace: "allow_untrusted: boolean().default(true)",
    tests: [tomlTest],
  },
  {
    name: "a secret that others may read is accepted",
    file: "core/secrets.ts",
    find: "if (stat.mode !== null && (stat.mode & 0o177) !== 0) {",
    replace: "if (stat.mode !== null && (stat.mode & 0o002) !== 0) {",
    tests: [secretsTest],
  },
  {
    name: "a link in a secret's place is followed",
    file: "core/secrets.ts",
    find: "before = await Deno.lstat(path);",
    replace: "before = await Deno.stat(path);",
    tests: [secretsTest],
  },
  {
    name: "a secret may be exchanged while it is opened",
    file: "core/secrets.ts",
    find: "if (stat.dev !== before.dev || stat.ino !== before.ino || !stat.isFile) {",
    replace: "if (!stat.isFile) {",
    tests: [filesTest],
  },
  {
    name: "a directory on a secret's way may be anybody's to write",
    file: "core/secrets.ts",
    find: "(stat.mode & 0o022) !== 0",
    replace: "(stat.mode & 0o002) !== 0",
    tests: [secretsTest],
  },
  {
    name: "a secret may hold line ends and control characters",
    file: "core/secrets.ts",
    find: "/^[\\x21-\\x7e]{1,512}$/",
    replace: "/^[^]{1,512}$/",
    tests: [secretsTest],
  },

  // The record.
  {
    name: "records are not synced to the disk",
    file: "brokerd/audit_log.ts",
    find: "await this.#file!.syncData();",
    replace: "",
    tests: [durabilityTest],
  },
  {
    name: "a new segment is renamed into place before it is on the disk",
    file: "brokerd/audit_log.ts",
    find: "writeWhole(file, opening);\n    await file.syncData();",
    replace: "writeWhole(file, opening);",
    tests: [durabilityTest],
  },
  {
    name: "the birth of a segment is not synced in its directory",
    file: "brokerd/audit_log.ts",
    find: "await Deno.rename(draft, segment.path);\n    await syncDirectory(this.#dir);",
    replace: "await Deno.rename(draft, segment.path);",
    tests: [durabilityTest],
  },
  {
    name: "the head is written before the log",
    file: "brokerd/audit_log.ts",
    find: "await this.#writeAll(queue);",
    replace:
      "this.#durable = queue[queue.length - 1].head;\n        await this.#writeHead();\n        await this.#writeAll(queue);",
    tests: [durabilityTest],
  },
  {
    name: "after a failed write the log goes on",
    file: "brokerd/audit_log.ts",
    find: "this.#failure ??= reason;\n    this.#cancelHeadTimer?.();",
    replace: "this.#cancelHeadTimer?.();",
    tests: [logTest],
  },
  {
    name: "two brokerds may write one log",
    file: "brokerd/audit_log.ts",
    find: "if (await file.tryLock(true)) return file;",
    replace: "return file;",
    tests: [logTest],
  },
  {
    name: "the log may be read by others",
    file: "brokerd/audit_log.ts",
    find:
      "const file = this.#openFile(draft, { write: true, create: true, truncate: true, mode: 0o600 });\n    this.#file = file;",
    replace:
      "const file = this.#openFile(draft, { write: true, create: true, truncate: true, mode: 0o644 });\n    this.#file = file;",
    tests: [logTest],
  },
  {
    name: "a log that was cut short is written on",
    file: "brokerd/audit_log.ts",
    find: "this.#checkHead(head, torn.length > 0);",
    replace: "",
    tests: [logTest],
  },
  {
    name: "a log that was rolled back is written on",
    file: "brokerd/audit_log.ts",
    find: "if (head?.seq === parsed.seq && head.hash !== checked.hash) {",
    replace: "if (head?.seq === -1) {",
    tests: [logTest],
  },
  {
    name: "a torn end is not recorded",
    file: "brokerd/audit_log.ts",
    find: "for (const { segment, bytes } of torn) {",
    replace: "for (const { segment, bytes } of torn.slice(0, 0)) {",
    tests: [logTest],
  },
  {
    name: "pruned segments are not recorded",
    file: "brokerd/audit_log.ts",
    find: 'this.append({ kind: "prune", before, segments: dropped });',
    replace: "",
    tests: [serverTest],
  },
  {
    name: "verification does not look at prev",
    file: "core/audit/line.ts",
    find: "if (place.prev !== undefined && envelope.prev !== place.prev) {",
    replace: "if (place.prev === envelope.kind) {",
    tests: [verifyTest],
  },
  {
    name: "verification does not look at seq",
    file: "core/audit/line.ts",
    find: "if (envelope.seq !== place.seq)",
    replace: "if (envelope.seq < 0)",
    tests: [verifyTest],
  },
  {
    name: "verification does not hash the body",
    file: "core/audit/line.ts",
    find: "sha256(body) !== bodySha256",
    replace: "sha256(body).length !== 64",
    tests: [verifyTest],
  },
  {
    name: "verification does not look at the known heads",
    file: "core/audit/verify.ts",
    find: "if (verdict !== undefined) return verdict;",
    replace: "",
    tests: [verifyTest],
  },
  {
    name: "a torn last line verifies as sound",
    file: "core/audit/verify.ts",
    find: "if (this.#torn !== undefined) {",
    replace: "if (this.#records < 0 && this.#torn !== undefined) {",
    tests: [verifyTest],
  },
  {
    name: "a log without its beginning verifies as sound",
    file: "core/audit/verify.ts",
    find: "if (dropped === undefined) {",
    replace: "if (dropped === undefined && first < 0) {",
    tests: [verifyTest],
  },

  // What comes in.
  {
    name: "a request body of any size is read",
    file: "core/wire/server.ts",
    find: "if (length > requestBodyBytesMax) throw tooLarge();",
    replace: "",
    tests: ["tests/unit/core/wire_test.ts"],
  },
  {
    name: "a caller that leaves inside its body ends the role",
    file: "core/wire/server.ts",
    find: "if (error instanceof ProtocolError) throw error;\n    // The caller left",
    replace: "throw error;\n    // The caller left",
    tests: ["tests/hostile/callers_test.ts"],
  },
  {
    name: "a refusal shows a peer's own bytes",
    file: "core/wire/server.ts",
    find: 'return text.replace(/[^\\x20-\\x7e]/g, "?");',
    replace: "return text;",
    tests: ["tests/hostile/callers_test.ts"],
  },
  {
    name: "JSON of any depth is parsed",
    file: "core/json.ts",
    find: "if (deeperThan(text, jsonDepthMax)) return undefined;",
    replace: "",
    tests: ["tests/unit/core/json_test.ts"],
  },
  {
    name: "an argument named __proto__ is dropped unseen",
    file: "core/protocol/broker.ts",
    find: "z.custom<JsonObject>(isJsonObject, {",
    replace: "z.record(z.string(), z.unknown(), {",
    tests: ["tests/hostile/callers_test.ts"],
  },
  {
    name: "a session id may hold a slash",
    file: "core/ids.ts",
    find: "`^[a-z0-9-]{1,${sessionIdCharactersMax}}$`",
    replace: "`^[a-z0-9/-]{1,${sessionIdCharactersMax}}$`",
    tests: ["tests/hostile/callers_test.ts"],
  },
  {
    name: "a session id may have 65 characters",
    file: "core/ids.ts",
    find: "`^[a-z0-9-]{1,${sessionIdCharactersMax}}$`",
    replace: "`^[a-z0-9-]{1,${sessionIdCharactersMax + 1}}$`",
    tests: ["tests/unit/core/ids_test.ts"],
  },
  {
    name: "a child's number may begin with a zero",
    file: "core/ids.ts",
    find: "-([1-9][0-9]*)$/",
    replace: "-([0-9]+)$/",
    tests: ["tests/unit/core/ids_test.ts"],
  },
  {
    name: "the sockets are open to every user",
    file: "core/wire/server.ts",
    find: "Deno.chmodSync(path, 0o600);",
    replace: "Deno.chmodSync(path, 0o666);",
    tests: ["tests/unit/core/wire_test.ts"],
  },
  {
    name: "a control token passes neutralising",
    file: "core/text.ts",
    find: "const tagStart = /<(?=[A-Za-z/|",
    replace: "const tagStart = /<(?=[A-Za-z/",
    tests: ["tests/unit/core/text_test.ts"],
  },
  {
    name: "a denial tells how to lift the gate",
    file: "brokerd/answers.ts",
    find: 'text: "This tool is not granted to this session."',
    replace: 'text: "This tool is not granted; ask in another session, or add a [[grant]] to grants.toml."',
    tests: [wordingTest],
  },
];
