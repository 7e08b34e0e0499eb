// Text that crosses into a model's context: capped on a character boundary, and made unable to pose as the template around it.
// Neutralising is not escaping: nothing undoes it, and a reader still sees what stood there.

/** `‹`, which no tokenizer joins into a tag or a control token. */
const harmlessBracket = "\u2039";
const harmlessSquareBracket = "\uff3b";

// A `<` begins a tag or a control token when what follows could open one: a name, `/`, `|` (ChatML, Llama 3, Phi), the full-width bar of
// other families, `!` and `?` (comments, declarations), or `[` and `_`. `a < b` and `x <3` stay as they are.
const tagStart = /<(?=[A-Za-z/|\uff5c!?_[])/g;
// Families whose control tokens are square-bracketed words. Only whole known words: `[1]` and `[INST` alone are ordinary text.
const squareControlToken =
  /\[(?=\/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|ARGS|CALL_ID|IMG|THINK|gMASK|BOS|EOS)\])/g;
// The owner's own words keep their markup; what would end their message and begin another does not survive.
const controlTokenStart =
  /<(?=[|\uff5c]|\/?(?:s|think|tool_call|tool_response|tools|start_of_turn|end_of_turn|bos|eos|pad|unk)>)/gi;

/** For everything that did not come from the owner's own keyboard: every `<` that begins a tag or a control token becomes `‹` (B12). */
export function neutralise(text: string): string {
  return text.replace(tagStart, harmlessBracket).replace(squareControlToken, harmlessSquareBracket);
}

/** For the owner's message: control tokens only. On a real server `<|im_end|>` inside user text *is* the control token (facts 2b). */
export function neutraliseControlTokens(text: string): string {
  return text.replace(controlTokenStart, harmlessBracket).replace(squareControlToken, harmlessSquareBracket);
}

/** The last line of a cut text, N and M in UTF-16 code units. */
export function cutMarker(kept: number, total: number): string {
  return `[cut: ${kept} of ${total} characters]`;
}

/**
 * The text itself when it has at most `charactersMax` UTF-16 code units, else its beginning, cut so that no character is split (not a
 * surrogate pair, not a base from its combining marks or joiners), followed by `cutMarker` on a line of its own. The marker comes on top of the cap.
 */
export function capText(text: string, charactersMax: number): string {
  return isCut(text, charactersMax) ? capped(text, charactersMax) : text;
}

export function isCut(text: string, charactersMax: number): boolean {
  return text.length > charactersMax;
}

function capped(text: string, charactersMax: number): string {
  const kept = text.slice(0, characterBoundary(text, charactersMax));
  return `${kept}\n${cutMarker(kept.length, text.length)}`;
}

// Made at the first cut: the first use of `Intl` in a process loads its data, which would be a tenth of a role's start.
let graphemes: Intl.Segmenter | undefined;
/** A character longer than this (a stack of combining marks) is cut inside: it would otherwise take the whole cap with it. */
const characterUnitsMax = 64;

// The last boundary at or before `at`. Only the neighbourhood is segmented: segmenting a megabyte to cut it once would be the slow path.
function characterBoundary(text: string, at: number): number {
  const from = Math.max(0, at - characterUnitsMax);
  const start = isLowSurrogate(text, from) ? from + 1 : from;
  let boundary = start;
  graphemes ??= new Intl.Segmenter("en", { granularity: "grapheme" });
  for (const { index } of graphemes.segment(text.slice(start, at + characterUnitsMax))) {
    if (start + index > at) break;
    boundary = start + index;
  }
  if (boundary > start || at === start) return boundary;
  return isLowSurrogate(text, at) ? at - 1 : at;
}

function isLowSurrogate(text: string, at: number): boolean {
  const code = text.charCodeAt(at);
  return code >= 0xdc00 && code <= 0xdfff;
}

const encoder = new TextEncoder();

/** Length in UTF-8 bytes. */
export function utf8Length(text: string): number {
  return encoder.encode(text).length;
}
