// The list of deliberate faults fits the code of today: each stands exactly once where it says, changes something, and names tests that are
// there. Whether they notice is for `deno task mutate`.

import { assert, assertEquals, assertThrows } from "@std/assert";
import { ownRoot } from "../../../tools/launch/root.ts";
import { faults } from "../../../tools/mutate/faults.ts";
import { replacedOnce } from "../../../tools/mutate/scratch.ts";

const faultsMin = 25;

Deno.test("every deliberate fault stands once in brokerd or core, changes it, has a name of its own, and its tests exist", async () => {
  assert(faults.length >= faultsMin);
  assertEquals(new Set(faults.map(({ name }) => name)).size, faults.length);
  for (const fault of faults) {
    assert(/^(brokerd|core)\//.test(fault.file), fault.name);
    const text = await Deno.readTextFile(`${ownRoot}/${fault.file}`);
    assert(replacedOnce(text, fault) !== text, fault.name);
    assert(fault.tests.length > 0, fault.name);
    for (const path of fault.tests) assert((await Deno.stat(`${ownRoot}/${path}`)).isFile);
  }
});

Deno.test("a text that stands there twice, or not at all, is no place for a fault", () => {
  const at = (find: string) => replacedOnce("one two two", { file: "f", find, replace: "$&three" });
  assertEquals(at("one"), "$&three two two");
  assertThrows(() => at("two"), Error, "stands there 2 times");
  assertThrows(() => at("four"), Error, "stands there 0 times");
});
