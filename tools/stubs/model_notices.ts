// When the practice model notices that a client left while nothing was being said to it.
// Owns: the armed timers of lost requests. Never cancels a request that is speaking (that one notices by
// itself), and keeps no timer after `disarm`.

/**
 * How late the server notices that a client left while it was not speaking to it. The wait starts again with
 * every result of any slot, as on the real server: polling `/slots` too fast keeps a lost request alive.
 */
export class CancelNotices {
  #armed = new Map<() => void, ReturnType<typeof setTimeout>>();

  constructor(readonly delayMs: number) {}

  arm(cancel: () => void): () => void {
    if (this.delayMs === 0) {
      cancel();
      return () => {};
    }
    this.#start(cancel);
    return () => {
      clearTimeout(this.#armed.get(cancel));
      this.#armed.delete(cancel);
    };
  }

  traffic(): void {
    for (const [cancel, timer] of [...this.#armed]) {
      clearTimeout(timer);
      this.#start(cancel);
    }
  }

  #start(cancel: () => void): void {
    this.#armed.set(
      cancel,
      setTimeout(() => {
        this.#armed.delete(cancel);
        cancel();
      }, this.delayMs),
    );
  }
}
