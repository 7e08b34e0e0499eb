// Every bound that more than one file obeys, with its unit in its name. A bound that the owner may set stands in
// core/config instead, with its default.

export const sessionIdCharactersMax = 64;
/** Children over the whole tree of one live turn (S14). */
export const childrenPerTurnMax = 32;

/** A request body on any of the three sockets; one past it is 413. */
export const requestBodyBytesMax = 1_048_576;
/** A consult question as brokerd accepts it; loopd cuts long before. */
export const questionBytesMax = 262_144;
/** A reply that a client of our own sockets will read: the log of a long session is the largest. */
export const responseBodyBytesMax = 64 * 1_048_576;
/** Nesting of arrays and objects in JSON that a peer sent. */
export const jsonDepthMax = 64;

/** A consult reply, in decoded bytes, unless `[consult] reply_bytes_max` says otherwise. */
export const consultReplyBytesDefault = 1_048_576;
/** What the audit record keeps of a consult's answer. */
export const auditAnswerCharactersMax = 16_000;
/** Size at which the audit log begins a new segment. A start verifies one segment: at this size, well within the second it has. */
export const auditSegmentBytesMax = 16 * 1_048_576;
/** One line of the audit log; a body of `questionBytesMax` escapes to at most six bytes each. */
export const auditLineBytesMax = 4 * 1_048_576;
/** Calls that may wait on brokerd at once, over all connections. */
export const pendingCallsMax = 256;

/** One line of a session log: a model message of `modelMessageCharactersMax` may stand there twice, each character up to six bytes. */
export const sessionLineBytesMax = 16 * 1_048_576;
/** One owner's message. */
export const userTextBytesMax = 262_144;

/** One server-sent event from the inference server. */
export const streamEventBytesMax = 1_048_576;
/** All text (content, thinking, arguments) of one model message. */
export const modelMessageCharactersMax = 1_000_000;
/** Tool calls in one model message; more is refused as a malformed message. */
export const toolCallsPerMessageMax = 32;
/** Requests for one model message whose tool arguments are not JSON objects (F19). */
export const badArgumentsTriesMax = 3;
/** Requests for one model message that a server answers with 5xx before any token. */
export const serverErrorTriesMax = 3;
/** A draining slot is asked for no more often than this: faster polling keeps the server from noticing (facts 2.4). */
export const drainPollMs = 1_200;
/** Waiters on one slot. */
export const slotQueueMax = 128;
/** What is remembered of who held the slots: no longer than this, and no more spans. */
export const slotHistoryMs = 3_600_000;
export const slotSpansMax = 2_000;

/** One file of spans, and how many are kept: the oldest give way. */
export const traceFileBytesMax = 8 * 1_048_576;
export const traceFilesMax = 8;

/** An owner's configuration file. */
export const configFileBytesMax = 1_048_576;
export const secretBytesMax = 513;
/** A Unix socket's path, as the kernel bounds it (facts/deno.md). */
export const socketPathBytesMax = 107;
