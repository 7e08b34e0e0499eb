// A blank question asks nothing, and would cost budget, money and the session's trust all the same.

import { assertEquals } from "@std/assert";
import { makeToolset } from "../../../brokerd/toolset.ts";

Deno.test("C1 a blank question is invalid-arguments, one of a single character is taken", () => {
  const toolset = makeToolset({
    config: { consult: undefined, honcho: undefined, approvals: { expireMinutes: 60 } },
    consultBearer: undefined,
    honchoBearer: undefined,
  });
  for (const name of ["consult", "ask_memory"]) {
    const parse = toolset.get(name)!.parse;
    for (const question of ["", "  ", "\n\t"]) {
      assertEquals(parse({ question }), { invalid: "The question is blank." });
    }
    assertEquals(parse({ question: "?" }), { question: "?" });
  }
});
