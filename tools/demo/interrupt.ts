// Ctrl-C and its kin for a program that has something to clear away: the work is told to stop, clears up, and then the process ends with
// the signal's own exit code. A second signal changes nothing: clearing up is bounded by the launcher's own times.

const signals = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 } as const;

/** Runs `work`; resolves with its exit code, or with the signal's where one came. */
export async function endOnSignals(
  name: string,
  work: (signal: AbortSignal) => Promise<number>,
): Promise<number> {
  const stopping = new AbortController();
  let exitCode: number | undefined;
  for (const [signal, code] of Object.entries(signals)) {
    Deno.addSignalListener(signal as keyof typeof signals, () => {
      exitCode ??= code;
      stopping.abort(new Error(`ended by ${signal}`));
    });
  }
  try {
    const code = await work(stopping.signal);
    return exitCode ?? code;
  } catch (error) {
    if (exitCode === undefined) throw error;
    console.error(`${name}: ended by a signal; everything it started is stopped`);
    return exitCode;
  }
}
