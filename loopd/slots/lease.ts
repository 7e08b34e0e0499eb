// One request under one lease: the slot is given back in every way out, as settled only where the server said that it had finished.

import { ModelFailure } from "../inference/model_failure.ts";
import type { Lease, SlotGate, SlotRequest } from "./gate.ts";

export async function withSlot<T>(
  gate: SlotGate,
  slot: number,
  request: SlotRequest,
  use: (lease: Lease) => Promise<T>,
): Promise<T> {
  const lease = await gate.acquire(slot, request);
  try {
    const result = await use(lease);
    lease.release("settled");
    return result;
  } catch (error) {
    lease.release(error instanceof ModelFailure && error.settled ? "settled" : "abandoned");
    throw error;
  }
}
