// The grammar under which a model writes raw calls: any text, and every `<tool_call>` that it opens holds one JSON object with the name of a tool
// and an arguments object. The server constrains the calls that it reads itself the same way; with raw history nothing else would.

/** How a model's tokenizer sees the two tags. */
export type TagTokens = "single-tokens" | "plain-text";

export function rawCallGrammar(names: readonly string[], tags: TagTokens): string {
  return [...(tags === "single-tokens" ? tokenRules : textRules()), ...callRules(names)].join("\n");
}

// Where a tag is one token of the vocabulary, the model must write it as that token: spelt out in pieces it would be read back as the one token,
// and the rest of the reply would be computed again (measured: 12 tokens a call).
const tokenRules = [
  "root ::= !<tool_call>* calls?",
  `calls ::= <tool_call> call </tool_call> ( "\\n" calls? )?`,
];

// Elsewhere the tag is text like any other. One rule for each prefix of it that the text has reached; each ends in a rule, so that the parser's
// stack does not grow with the text.
function textRules(): string[] {
  const tag = "<tool_call>";
  const rules = [...tag].map((character, reached) => {
    const next = reached + 1 === tag.length ? "calls" : `text${reached + 1}`;
    const others = character === "<" ? `[^<] text0` : `[^<${character}] text0 | "<" text1`;
    return `text${reached} ::= "" | ${JSON.stringify(character)} ${next} | ${others}`;
  });
  return ["root ::= text0", ...rules, `calls ::= call "</tool_call>" ( "\\n" ( "<tool_call>" calls )? )?`];
}

function callRules(names: readonly string[]): string[] {
  return [
    `call ::= "\\n{\\"name\\": " name ", \\"arguments\\": " object "}\\n"`,
    `name ::= ${names.map((name) => JSON.stringify(JSON.stringify(name))).join(" | ")}`,
    `object ::= "{" ws ( pair ( "," ws pair )* )? "}"`,
    `pair ::= string ":" ws value`,
    `array ::= "[" ws ( value ( "," ws value )* )? "]"`,
    `value ::= object | array | string | number | "true" | "false" | "null"`,
    `string ::= "\\"" ( [^"\\\\\\x7F\\x00-\\x1F] | "\\\\" ( ["\\\\/bfnrt] | "u" [0-9a-fA-F]{4} ) )* "\\""`,
    `number ::= "-"? ( "0" | [1-9] [0-9]{0,15} ) ( "." [0-9]{1,15} )? ( [eE] [-+]? [0-9]{1,2} )?`,
    `ws ::= " "?`,
  ];
}
