// The replies that the benches' scripts say.

import type { ScriptedReply } from "./scripted_server.ts";

export function call(name: string, args: Readonly<Record<string, unknown>>): ScriptedReply {
  return { call: { name, arguments: args } };
}

export const clockCall = call("clock", {});
export const noon: ScriptedReply = { text: "It is noon." };
