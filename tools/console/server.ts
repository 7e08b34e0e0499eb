// The console's HTTP: who may ask, which page answers, the two forms, and the stream of live changes. Every answer carries a policy that
// lets a browser run nothing but our one script. What a page shows is the page's.

import { type Context, Hono } from "hono";
import { getCookie } from "hono/cookie";
import { streamSSE } from "hono/streaming";
import { createHash } from "node:crypto";
import { describeError } from "../../core/errors.ts";
import { Access, type Viewer } from "./access.ts";
import script from "./client.js" with { type: "text" };
import style from "./console.css" with { type: "text" };
import icon from "./icon.svg" with { type: "text" };
import { assetPaths, documentHtml, partHtml, plainDocument, Problem } from "./layout.tsx";
import { findPage, type Found } from "./pages.ts";
import { Sources, Unavailable } from "./sources.ts";
import type { Times } from "./text.tsx";
import type { PageContext, View } from "./view.ts";

export interface ConsoleOptions {
  readonly access: Access;
  readonly sources: Sources;
  readonly times: Times;
  readonly allowDecisions: boolean;
}

/** Pages that are kept live at once; one more waits for another to be closed. */
const liveStreamsMax = 24;
/** A stream that has nothing to say says so this often, and learns that its reader is gone. */
const quietMsMax = 15_000;
const formBytesMax = 4_096;
const pathCharactersMax = 1_000;

const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types boxmaker",
].join("; ");

const headers = {
  "content-security-policy": policy,
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  // Not no-referrer: a form would then be sent with the origin "null", and could not be told from one of elsewhere.
  "referrer-policy": "same-origin",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "cache-control": "no-store",
};

const assets: Readonly<Record<string, { readonly type: string; readonly text: string }>> = {
  [assetPaths.style]: { type: "text/css; charset=utf-8", text: style },
  [assetPaths.script]: { type: "text/javascript; charset=utf-8", text: script },
  [assetPaths.icon]: { type: "image/svg+xml", text: icon },
};

export function consoleApp(options: ConsoleOptions): Hono {
  const { access, sources, allowDecisions } = options;
  const app = new Hono();
  let liveStreams = 0;

  app.use(async (c, next) => {
    const refusal = access.refusal(c.req.raw, { entering: c.req.path === "/enter" });
    if (refusal === undefined) await next();
    else c.res = c.text(refusal.text, refusal.status);
    for (const [name, value] of Object.entries(headers)) c.res.headers.set(name, value);
    // Style and script hold nothing of the owner's, and a page that waits for them again at every step is slower by a third.
    if (refusal === undefined && c.req.path in assets) {
      c.res.headers.set("cache-control", "private, max-age=86400");
    }
  });
  app.onError((error, c) => {
    console.error(`console: ${describeError(error)}`);
    return c.text("The console met a fault of its own; its terminal says which.", 500);
  });
  // The same for a path that is not there and for a browser that did not enter: nothing here tells them apart.
  app.notFound((c) =>
    c.html(
      plainDocument(
        "Not open here",
        "Open the address that the console printed where it was started. Each works once; Enter there prints another.",
      ),
      403,
    )
  );

  for (const [path, { type, text }] of Object.entries(assets)) {
    app.get(path, (c) => c.body(text, 200, { "content-type": type }));
  }

  app.get("/enter", (c) => {
    const cookie = access.enter(c.req.query("key") ?? "");
    if (cookie === undefined) return c.notFound();
    c.header("set-cookie", cookie);
    // A page that leads on, not a redirect: a strict cookie is not sent along a redirect that began on another site.
    return c.html(
      plainDocument("Opening the console", "One moment.", {
        to: `${access.base}/now`,
        text: "Go on",
        soon: true,
      }),
    );
  });

  /** A handler for viewers alone. */
  const forViewers =
    (handle: (c: Context, viewer: Viewer) => Promise<Response> | Response) => async (c: Context) => {
      const viewer = access.viewer(getCookie(c, access.cookieName));
      return viewer === undefined ? await c.notFound() : await handle(c, viewer);
    };

  app.get(access.base, forViewers((c) => c.redirect(`${access.base}/now`, 303)));
  app.get(`${access.base}/`, forViewers((c) => c.redirect(`${access.base}/now`, 303)));

  app.get(
    `${access.base}/live`,
    forViewers((c, viewer) => {
      const at = new URL((c.req.query("at") ?? "").slice(0, pathCharactersMax), access.origin);
      const found = findPage(at.pathname.slice(access.base.length));
      if (found === undefined) return c.text("There is no such page.", 404);
      if (liveStreams >= liveStreamsMax) return c.text("Too many pages are live.", 503);
      liveStreams++;
      const context = contextOf(options, viewer, found, Object.fromEntries(at.searchParams));
      return streamSSE(c, async (stream) => {
        const left = new AbortController();
        stream.onAbort(() => left.abort());
        try {
          for await (const { event, data } of changes(found, context, left.signal)) {
            await stream.writeSSE({ event, data });
          }
        } finally {
          liveStreams--;
        }
      });
    }),
  );

  app.post(
    `${access.base}/approvals/:id`,
    forViewers(async (c, viewer) => {
      const form = await formOf(c);
      if (form === undefined || !access.isFormKey(viewer, form.get("formKey") ?? "")) {
        return c.text("The form does not come from a page of this console.", 403);
      }
      if (!allowDecisions) {
        return c.text("This console only shows: start it with --allow-decisions to decide here.", 403);
      }
      const id = c.req.param("id") ?? "";
      const decision = form.get("decision");
      if (decision !== "approve" && decision !== "deny") return c.text("Wanted approve or deny.", 400);
      try {
        await sources.decide(id, decision, form.get("bodySha256") ?? "");
        viewer.notice = { tone: "good", text: `${decision === "approve" ? "Approved" : "Denied"} ${id}.` };
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error;
        viewer.notice = { tone: "bad", text: `Nothing was decided: ${error.message}` };
      }
      return c.redirect(`${access.base}/approvals`, 303);
    }),
  );

  app.post(
    `${access.base}/record/verify`,
    forViewers(async (c, viewer) => {
      const form = await formOf(c);
      if (form === undefined || !access.isFormKey(viewer, form.get("formKey") ?? "")) {
        return c.text("The form does not come from a page of this console.", 403);
      }
      sources.verify();
      return c.redirect(`${access.base}/record`, 303);
    }),
  );

  app.get(
    `${access.base}/*`,
    forViewers(async (c, viewer) => {
      const found = findPage(c.req.path.slice(access.base.length));
      if (found === undefined) return await c.notFound();
      const context = contextOf(options, viewer, found, c.req.query());
      const [view, waiting] = await Promise.all([viewOf(found, context), waitingCount(sources)]);
      const { notice } = viewer;
      viewer.notice = undefined;
      const { pathname, search } = new URL(c.req.url);
      const text = documentHtml({
        view,
        section: found.page.section,
        base: access.base,
        at: pathname + search,
        waiting,
        notice,
      });
      return c.html(text, view.httpStatus ?? 200);
    }),
  );

  return app;
}

function contextOf(
  { access, sources, times, allowDecisions }: ConsoleOptions,
  viewer: Viewer,
  { params }: Found,
  query: Readonly<Record<string, string>>,
): PageContext {
  return { sources, times, allowDecisions, viewer, params, query, base: access.base };
}

async function viewOf({ page }: Found, context: PageContext): Promise<View> {
  try {
    return await page.load(context);
  } catch (error) {
    if (!(error instanceof Unavailable)) throw error;
    return {
      title: page.section,
      parts: [{ id: "problem", node: Problem({ text: error.message }) }],
      httpStatus: 503,
    };
  }
}

async function waitingCount(sources: Sources): Promise<number> {
  return await sources.approvals().then(({ length }) => length, () => 0);
}

/** Every part of the page as it is, then whatever of it changes, until the reader is gone. */
async function* changes(
  found: Found,
  context: PageContext,
  left: AbortSignal,
): AsyncGenerator<{ event: string; data: string }> {
  const sent = new Map<string, string>();
  let lastSentMs = performance.now();
  const isNew = (id: string, text: string) => {
    const hash = createHash("sha256").update(text).digest("base64");
    if (sent.get(id) === hash) return false;
    sent.set(id, hash);
    lastSentMs = performance.now();
    return true;
  };
  while (!left.aborted) {
    const { parts } = await viewOf(found, context);
    for (const part of parts) {
      const text = partHtml(part);
      if (isNew(part.id, text)) yield { event: "part", data: JSON.stringify({ id: part.id, html: text }) };
    }
    const ids = parts.map(({ id }) => id).join(" ");
    if (isNew(" order", ids)) yield { event: "order", data: ids };
    const waiting = `${await waitingCount(context.sources)}`;
    if (isNew(" waiting", waiting)) yield { event: "waiting", data: waiting };
    if (performance.now() - lastSentMs > quietMsMax) {
      lastSentMs = performance.now();
      yield { event: "still", data: "" };
    }
    await pause(found.page.everyMs, left);
  }
}

function pause(ms: number, left: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (left.aborted) return resolve();
    const end = () => {
      clearTimeout(timer);
      left.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    left.addEventListener("abort", end, { once: true });
  });
}

async function formOf(c: Context): Promise<URLSearchParams | undefined> {
  if (!(c.req.header("content-type") ?? "").startsWith("application/x-www-form-urlencoded")) return undefined;
  if (Number(c.req.header("content-length") ?? Infinity) > formBytesMax) return undefined;
  return new URLSearchParams(await c.req.text());
}
