// The numbers that tests must name: one list for the coverage check and for whoever asks what a number is. Numbers are those of
// the owner's specification, line by line; F numbers are faults seen elsewhere, which become tests here one by one.

const series = {
  P: 3,
  S: 17,
  C: 13,
  K: 5,
  T: 10,
  D: 2,
  B: 13,
} as const;

/** Every requirement, such as `S14`. */
export const requirementIds: readonly string[] = Object.entries(series).flatMap(([letter, count]) =>
  ids(letter, count)
);
/** Every case of a fault, such as `F24`: reported, not required. */
export const faultCaseIds: readonly string[] = ids("F", 34);

function ids(letter: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => `${letter}${index + 1}`);
}
