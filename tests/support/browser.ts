// A headless Chromium for one test: a profile of its own, no network but this device, and every breach of a page's policy, every fault of a
// script and every request past 127.0.0.1 kept as a complaint. A machine without the browser fails; it does not skip.

import { type BrowserContext, chromium, type Page } from "playwright-core";

/** Debian's; `.ci/run` installs it. */
const executablePath = "/usr/bin/chromium";
/** Names no real host, and leads to this device: for a page of elsewhere. */
export const otherHost = "elsewhere.test";
const actionMsMax = 20_000;

export interface Browser extends AsyncDisposable {
  readonly context: BrowserContext;
  /** What should not have happened, in words. */
  readonly complaints: readonly string[];
  newPage(): Promise<Page>;
}

export interface BrowserOptions {
  readonly colours?: "light" | "dark";
  readonly width?: number;
  readonly height?: number;
}

export async function startBrowser(
  { colours = "light", width = 1_280, height = 900 }: BrowserOptions = {},
): Promise<Browser> {
  await Deno.stat(executablePath).catch(() => {
    throw new Error(`${executablePath} is not there; the browser tests need it: apt-get install chromium`);
  });
  const profile = await Deno.makeTempDir({ prefix: "bx-browser-" });
  const context = await chromium.launchPersistentContext(profile, {
    executablePath,
    headless: true,
    colorScheme: colours,
    viewport: { width, height },
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
      `--host-resolver-rules=MAP ${otherHost} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1`,
    ],
  });
  context.setDefaultTimeout(actionMsMax);
  const complaints: string[] = [];
  // Chromium reports a breach of the policy as an error of the console.
  context.on("console", (message) => {
    if (message.type() === "error") complaints.push(message.text());
  });
  context.on("weberror", (error) => complaints.push(`script fault: ${error.error().message}`));
  context.on("dialog", (dialog) => {
    complaints.push(`dialog: ${dialog.message()}`);
    dialog.dismiss().catch(() => {});
  });
  context.on("request", (request) => {
    const { hostname, protocol } = new URL(request.url());
    if (protocol !== "data:" && hostname !== "127.0.0.1" && hostname !== otherHost) {
      complaints.push(`asked for ${request.url()}`);
    }
  });
  return {
    context,
    complaints,
    newPage: () => context.newPage(),
    async [Symbol.asyncDispose]() {
      await context.close();
      await Deno.remove(profile, { recursive: true });
    },
  };
}
