// Keeps a page live: takes the parts that changed from the stream and puts them in their places. It makes nothing of its own, and what it puts
// in was escaped by the console; the page's policy lets it parse markup by this one name only.

const policy = globalThis.trustedTypes?.createPolicy("boxmaker", { createHTML: (text) => text });
const state = document.getElementById("live-state");
const title = document.title;
let stream;

function say(word, text) {
  if (state.dataset.state === word) return;
  state.dataset.state = word;
  state.textContent = text;
}

function parse(text) {
  const parsed = new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, "text/html");
  return parsed.body.firstElementChild;
}

/** A part that the owner marks text in is left alone until that is over. */
function isBeingRead(part) {
  const selection = getSelection();
  return selection !== null && !selection.isCollapsed && selection.containsNode(part, true);
}

const held = new Map();

function put(id, text) {
  const old = document.getElementById(id);
  if (old !== null && isBeingRead(old)) {
    held.set(id, text);
    return;
  }
  held.delete(id);
  const made = parse(text);
  if (made === null || made.id !== id) return;
  if (old === null) {
    document.getElementById("content").append(document.adoptNode(made));
    return;
  }
  if (old.outerHTML === made.outerHTML) return;
  // What the owner opened stays open, and the keyboard stays where it was.
  for (const details of old.querySelectorAll("details[id]")) {
    const same = made.querySelector(`#${CSS.escape(details.id)}`);
    if (same !== null) same.open = details.open;
  }
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const place = focused === null ? -1 : focusable(old).indexOf(focused);
  old.replaceWith(document.adoptNode(made));
  if (focused === null) return;
  const again = focused.id === "" ? focusable(made)[place] : made.querySelector(`#${CSS.escape(focused.id)}`);
  again?.focus({ preventScroll: true });
}

function focusable(part) {
  return [...part.querySelectorAll("a[href], button, summary, input:not([type=hidden])")];
}

function showWaiting(count) {
  const badge = document.getElementById("waiting");
  badge.hidden = count === 0;
  badge.dataset.count = `${count}`;
  badge.lastChild.textContent = ` ${count}`;
  document.title = count === 0 ? title : `(${count}) ${title}`;
}

function open() {
  stream = new EventSource(document.body.dataset.live);
  stream.addEventListener("open", () => say("on", "live"));
  stream.addEventListener("error", () => say("off", "not live"));
  stream.addEventListener("part", ({ data }) => {
    const { id, html } = JSON.parse(data);
    put(id, html);
  });
  stream.addEventListener("order", ({ data }) => {
    const ids = data.split(" ");
    for (const part of document.querySelectorAll("[data-part]")) if (!ids.includes(part.id)) part.remove();
  });
  stream.addEventListener("waiting", ({ data }) => showWaiting(Number(data)));
}

document.addEventListener("selectionchange", () => {
  for (const [id, text] of held) put(id, text);
});

// A browser has few connections to one server: a page that nobody sees gives its own back.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    stream?.close();
    stream = undefined;
    say("off", "not live");
  } else if (stream === undefined) open();
});
addEventListener("pagehide", () => stream?.close());

if (!document.hidden) open();
