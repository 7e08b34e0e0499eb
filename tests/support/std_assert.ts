// `@std/assert` where JSR is out of reach: the names the tests use, over node:assert/strict. deno.json maps the import here.
// Signatures and narrowing are the real package's, so that a host which reaches it passes the same tests. It owns no
// assertion of our own: those stand beside the tests that need them.

import strict, { AssertionError } from "node:assert/strict";

export { AssertionError };

// `never[]` takes every constructor, whatever its parameters are.
type ErrorClass<E> = abstract new (...args: never[]) => E;

export function assert(expression: unknown, message = "the expression is not true"): asserts expression {
  if (!expression) throw new AssertionError({ message });
}

export function assertEquals<T>(actual: T, expected: T, message?: string): void {
  strict.deepStrictEqual(withPrototypes(actual), withPrototypes(expected), message);
}

export function assertNotEquals<T>(actual: T, expected: T, message?: string): void {
  strict.notDeepStrictEqual(withPrototypes(actual), withPrototypes(expected), message);
}

export function assertStrictEquals<T>(actual: unknown, expected: T, message?: string): asserts actual is T {
  strict.strictEqual(actual, expected, message);
}

export function assertMatch(actual: string, expected: RegExp, message?: string): void {
  strict.match(actual, expected, message);
}

export function assertStringIncludes(actual: string, expected: string, message?: string): void {
  if (actual.includes(expected)) return;
  throw new AssertionError({
    message: message ?? `${JSON.stringify(actual)} does not include ${JSON.stringify(expected)}`,
    actual,
    expected,
    operator: "includes",
  });
}

export function assertThrows(throwing: () => unknown, message?: string): unknown;
export function assertThrows<E extends Error = Error>(
  throwing: () => unknown,
  errorClass: ErrorClass<E>,
  messageIncludes?: string,
  message?: string,
): E;
export function assertThrows(
  throwing: () => unknown,
  classOrMessage?: ErrorClass<Error> | string,
  messageIncludes?: string,
  message?: string,
): unknown {
  let thrown: { error: unknown } | undefined;
  try {
    throwing();
  } catch (error) {
    thrown = { error };
  }
  return checkThrown(thrown, "the function did not throw", classOrMessage, messageIncludes, message);
}

export function assertRejects(rejecting: () => PromiseLike<unknown>, message?: string): Promise<unknown>;
export function assertRejects<E extends Error = Error>(
  rejecting: () => PromiseLike<unknown>,
  errorClass: ErrorClass<E>,
  messageIncludes?: string,
  message?: string,
): Promise<E>;
export async function assertRejects(
  rejecting: () => PromiseLike<unknown>,
  classOrMessage?: ErrorClass<Error> | string,
  messageIncludes?: string,
  message?: string,
): Promise<unknown> {
  let promise: PromiseLike<unknown>;
  try {
    promise = rejecting();
  } catch {
    throw new AssertionError({ message: "the function threw before it returned a promise" });
  }
  let thrown: { error: unknown } | undefined;
  try {
    await promise;
  } catch (error) {
    thrown = { error };
  }
  return checkThrown(thrown, "the promise did not reject", classOrMessage, messageIncludes, message);
}

export function assertExists<T>(actual: T, message?: string): asserts actual is NonNullable<T> {
  if (actual === undefined || actual === null) {
    throw new AssertionError({ message: message ?? `a value is wanted, got ${actual}` });
  }
}

export function assertGreater<T>(actual: T, expected: T, message?: string): void {
  if (!(actual > expected)) {
    throw new AssertionError({
      message: message ?? `${actual} is not greater than ${expected}`,
      actual,
      expected,
    });
  }
}

export function assertLess<T>(actual: T, expected: T, message?: string): void {
  if (!(actual < expected)) {
    throw new AssertionError({
      message: message ?? `${actual} is not less than ${expected}`,
      actual,
      expected,
    });
  }
}

export function assertInstanceOf<T>(
  actual: unknown,
  expectedClass: ErrorClass<T>,
  message?: string,
): asserts actual is T {
  if (actual instanceof expectedClass) return;
  throw new AssertionError({
    message: message ?? `wanted an instance of ${expectedClass.name}, got ${describe(actual)}`,
  });
}

export function fail(message?: string): never {
  throw new AssertionError({ message: message === undefined ? "failed" : `failed: ${message}` });
}

export function unreachable(reason?: string): never {
  throw new AssertionError({ message: reason ?? "this was not to be reached" });
}

function checkThrown(
  thrown: { error: unknown } | undefined,
  absent: string,
  classOrMessage: ErrorClass<Error> | string | undefined,
  messageIncludes: string | undefined,
  message: string | undefined,
): unknown {
  const errorClass = typeof classOrMessage === "string" ? undefined : classOrMessage;
  const prefix = typeof classOrMessage === "string" ? classOrMessage : message;
  const refuse = (text: string): never => {
    throw new AssertionError({ message: prefix === undefined ? text : `${text}: ${prefix}` });
  };
  if (thrown === undefined) return refuse(absent);
  const { error } = thrown;
  if (errorClass === undefined) return error;
  if (!(error instanceof Error)) return refuse(`what was thrown is no Error: ${describe(error)}`);
  if (!(error instanceof errorClass)) {
    return refuse(`wanted an error of class ${errorClass.name}, got ${describe(error)}`);
  }
  if (messageIncludes !== undefined && !error.message.includes(messageIncludes)) {
    return refuse(
      `the error's message does not include ${JSON.stringify(messageIncludes)}, it is ${
        JSON.stringify(error.message)
      }`,
    );
  }
  return error;
}

function describe(value: unknown): string {
  return value instanceof Error ? `${value.name}: ${value.message}` : String(value);
}

// The real assertEquals calls an object without a prototype equal to a plain one; node's does not. Maps, sets and class
// instances are compared as they are.
function withPrototypes(value: unknown, seen = new Map<object, unknown>()): unknown {
  if (typeof value !== "object" || value === null) return value;
  const before = seen.get(value);
  if (before !== undefined) return before;
  const prototype = Object.getPrototypeOf(value);
  if (Array.isArray(value) && prototype === Array.prototype) {
    const copy: unknown[] = new Array(value.length);
    seen.set(value, copy);
    for (const index of Object.keys(value)) {
      define(copy, index, withPrototypes(Reflect.get(value, index), seen));
    }
    return copy;
  }
  if (prototype !== null && prototype !== Object.prototype) return value;
  const copy = {};
  seen.set(value, copy);
  for (const key of Reflect.ownKeys(value)) {
    const property = Object.getOwnPropertyDescriptor(value, key);
    if (property?.enumerable) define(copy, key, withPrototypes(Reflect.get(value, key), seen));
  }
  return copy;
}

// By definition, not by assignment: a key named __proto__ stays a key.
function define(target: object, key: PropertyKey, value: unknown): void {
  Object.defineProperty(target, key, { value, enumerable: true, configurable: true, writable: true });
}
