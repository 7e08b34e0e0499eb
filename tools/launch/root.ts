// Where this checkout lies: `deno.json`, the roles, the programs.

import { fileURLToPath } from "node:url";

export const ownRoot = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "");
