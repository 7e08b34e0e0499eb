// brokerd running: a broker served on its two sockets. Calls end before the sockets close, and the log closes last.

import { type Listener, listenOnSocket } from "../core/wire/server.ts";
import { type BrokerOptions, openBroker } from "./broker.ts";
import { brokerApp } from "./server.ts";

export interface BrokerdOptions extends BrokerOptions {
  /** Hears of our own faults, which a process does not outlive. */
  readonly onBug?: (error: unknown) => void;
}

export interface RunningBrokerd {
  /** Why every call is denied, while it is. */
  readonly denyAll: string | undefined;
  close(): Promise<void>;
}

/** Listens on both sockets when it resolves. Throws UsageError where another process holds the log or a socket. */
export async function startBrokerd({ onBug = rethrow, ...options }: BrokerdOptions): Promise<RunningBrokerd> {
  const broker = await openBroker(options);
  const listeners: Listener[] = [];
  const closeAll = async () => {
    await broker.stop();
    await Promise.all(listeners.map((listener) => listener.close()));
    await broker.close();
  };
  try {
    const { brokerSocket, ownerSocket } = options.paths;
    listeners.push(await listenOnSocket(brokerSocket, brokerApp("loopd", broker, onBug)));
    listeners.push(await listenOnSocket(ownerSocket, brokerApp("owner", broker, onBug)));
  } catch (error) {
    await closeAll();
    throw error;
  }
  return {
    get denyAll() {
      return broker.log.failure;
    },
    close: closeAll,
  };
}

function rethrow(error: unknown): never {
  throw error;
}
