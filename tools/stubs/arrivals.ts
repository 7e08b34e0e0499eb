// Things that arrive one after another, and those who wait for one of them without sleeping.
// Owns: the list in order of arrival and the promises of the waiting. Entries may change later: who changes one
// says so with `changed`. It keeps the newest entries up to its bound, and never looks at time.

const entriesMax = 20_000;

type Look<T> = () => T | undefined;

export class Arrivals<T extends { readonly order: number }> {
  readonly all: T[] = [];
  readonly #what: string;
  #handedOut = 0;
  #waiting = new Set<{ look: Look<T>; settle: PromiseWithResolvers<T> }>();
  #closed = false;

  /** `what` names the owner in the error that those get who wait when it closes. */
  constructor(what: string) {
    this.#what = what;
  }

  add(entry: T): void {
    this.all.push(entry);
    if (this.all.length > entriesMax) this.all.shift();
  }

  /** An entry was added or has changed: those who wait look again. */
  changed(): void {
    for (const waiting of this.#waiting) {
      const found = waiting.look();
      if (found === undefined) continue;
      this.#waiting.delete(waiting);
      waiting.settle.resolve(found);
    }
  }

  /** The earliest entry that this method has not given out yet; waits for it. */
  next(): Promise<T> {
    return this.#wait(() => {
      const found = this.all.find((entry) => entry.order > this.#handedOut);
      if (found !== undefined) this.#handedOut = found.order;
      return found;
    });
  }

  /** The earliest entry, past ones included, for which `predicate` is or becomes true. */
  waitFor(predicate: (entry: T) => boolean): Promise<T> {
    return this.#wait(() => this.all.find(predicate));
  }

  /** Refuses all who still wait, and all who come later and would have to. */
  close(): void {
    this.#closed = true;
    for (const { settle } of this.#waiting) settle.reject(this.#closedError());
    this.#waiting.clear();
  }

  #wait(look: Look<T>): Promise<T> {
    const found = look();
    if (found !== undefined) return Promise.resolve(found);
    const settle = Promise.withResolvers<T>();
    // Nobody has to be listening when the owner closes; whoever awaits the promise still gets the error.
    settle.promise.catch(() => {});
    if (this.#closed) settle.reject(this.#closedError());
    else this.#waiting.add({ look, settle });
    return settle.promise;
  }

  #closedError(): Error {
    return new Error(`${this.#what} was closed before such a request came`);
  }
}
