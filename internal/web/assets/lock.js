"use strict";
// The view of one lock. It is asked for once a second while it is open.

const $ = (id) => document.getElementById(id);
const token = document.querySelector("meta[name=pawl-token]").content;

// make is an element with a text.
function make(tag, text, className) {
  const el = document.createElement(tag);
  if (text) el.textContent = text;
  if (className) el.className = className;
  return el;
}

class LockView {
  constructor() {
    this.query = null;
  }

  // show opens the view of a lock: query is id=… or name=….
  show(query) {
    clearTimeout(this.timer);
    this.abort?.abort();
    this.query = query;
    if (!query) return;
    for (const id of ["lock-title", "lock-what", "lock-waiting"]) put($(id), "");
    for (const id of ["lock-holders", "lock-waiters", "lock-events"]) $(id).replaceChildren();
    $("lock-problem").hidden = true;
    this.ask();
  }

  async ask() {
    clearTimeout(this.timer);
    const query = this.query;
    if (!query) return;
    this.abort = new AbortController();
    try {
      const reply = await fetch("/api/lock?" + query, { signal: this.abort.signal });
      if (!reply.ok) throw new Error((await reply.text()).trim());
      const lock = await reply.json();
      if (query === this.query) this.draw(lock);
    } catch (e) {
      if (query === this.query && e.name !== "AbortError") this.problem(e.message);
    }
    if (query === this.query) this.timer = setTimeout(() => this.ask(), document.hidden ? 5000 : 1000);
  }

  problem(text) {
    put($("lock-problem"), text);
    $("lock-problem").hidden = !text;
  }

  draw(l) {
    put($("lock-title"), l.name);
    put($("lock-what"), heading(l));
    const unknown = [];
    if (l.error) unknown.push(l.error);
    if (l.not_asked) unknown.push("Who waits is not known: no engine could be asked: " + l.not_asked);
    if (l.silent) unknown.push(`${l.silent} more engines listen and do not answer: whether they wait is not known.`);
    if (l.hidden) unknown.push("This user may not see whether there is more: " + l.hidden);
    this.problem(unknown.join(" "));
    // A button keeps its focus: what has not changed stays.
    const holders = l.holders || [], waiters = l.waiters || [];
    this.list("lock-holders", holders, (h) => JSON.stringify([l.id, h, Math.floor(l.at / 1000)]), (h) => this.holder(l, h), (h) => h.id);
    if (l.holder_count > holders.length) $("lock-holders").append(make("li", `${l.holder_count - holders.length} more`));
    put($("lock-waiting"), String(l.waiting || 0));
    this.list("lock-waiters", waiters, (u) => JSON.stringify([u.engine.id, u.since, u.kind, Math.floor(l.at / 1000)]), (u) => this.use(l, u, true));
    if (l.waiting > waiters.length) $("lock-waiters").append(make("li", `${l.waiting - waiters.length} more`));
    this.list("lock-events", l.events, (e) => JSON.stringify(e), (e) => this.event(e));
    if (l.events.length === 0) $("lock-events").append(make("li", "nothing was seen yet"));
  }

  // list fills a list, and leaves elements of the same key as they are.
  list(id, all, key, element) {
    const old = new Map([...$(id).children].map((el) => [el.key, el]));
    const focused = document.activeElement?.dataset?.holder;
    $(id).replaceChildren(...all.map((x) => {
      const k = key(x), el = old.get(k) || element(x);
      el.key = k;
      return el;
    }));
    if (focused) [...$(id).querySelectorAll("button")].find((b) => b.dataset.holder === focused)?.focus();
  }

  holder(l, h) {
    const li = make("li");
    const e = h.engine;
    if (h.id.includes(":-")) li.append(make("p", "Nobody: the lock was given up, and MinHold keeps it taken"));
    else if (!e) li.append(make("p", "Whose it is the id does not say"));
    else if (e.answered) li.append(make("p", who(e)));
    else if (e.addr) li.append(make("p", `Connected from ${e.addr}, but does not answer: it hangs, or does not listen`));
    else li.append(make("p", "No answer and no connection: its process has ended or is cut off, or it is Redisson"));
    for (const [k, v] of Object.entries(e?.labels || {})) li.append(make("p", `“${k}” = “${v}”`));
    if (e?.contested) li.append(make("p", "Contested: another answer came in this engine’s name"));
    for (const u of h.uses || []) li.append(make("p", (u.engine ? who(u.engine) + ": " : "") + this.useText(l, u)));
    if (l.kind === "permits") li.append(make("p", h.ttl_ms === undefined ? "without a lease" : "lease ends in " + span(h.ttl_ms)));
    if (h.count > 1) li.append(make("p", `held ${h.count} times`));
    li.append(make("p", h.id, "id"));
    if (token && h.raw) {
      const b = make("button", "Take it away…", "danger");
      b.type = "button";
      b.dataset.holder = h.id;
      b.addEventListener("click", () => this.confirm(l, h));
      li.append(b);
    }
    return li;
  }

  useText(l, u) {
    let text = `${u.kind}, for ${span(l.at - Date.parse(u.since))}`;
    if (u.renewals) text += `, renewed ${u.renewals} times`;
    if (u.depth > 1) text += `, held ${u.depth} times`;
    if (u.site) text += `, at “${u.site}”`;
    if (u.under) text += `, while it holds ${u.under.map((n) => `“${n}”`).join(", ")}`;
    return text;
  }

  use(l, u) {
    return make("li", `${who(u.engine)}: ${this.useText(l, u)}`);
  }

  event(e) {
    const li = make("li"), at = make("time", new Date(e.at).toLocaleTimeString());
    at.dateTime = e.at;
    li.append(at, " ", {
      held: () => "held by " + e.holder,
      free: () => `free; ${e.holder} had it` + (e.left_ms ? `, with ${span(e.left_ms)} of its lease left` : ", and its lease had ended"),
      waiting: () => `waiting: ${e.from || 0} → ${e.to || 0}`,
      unlocked: () => `taken away from ${e.holder} on this page`,
    }[e.what]());
    return li;
  }

  confirm(l, h) {
    const dialog = $("confirm"), query = this.query; // id=… or name=…
    put($("confirm-name"), l.name);
    put($("confirm-holder"), (h.engine?.answered ? who(h.engine) + ", " : "") + h.id);
    dialog.returnValue = "no";
    dialog.onclose = async () => {
      if (dialog.returnValue !== "yes") return;
      try {
        const reply = await fetch("/api/unlock", {
          method: "POST",
          headers: { "Content-Type": "application/json", "X-Pawl-Token": token },
          body: JSON.stringify({ ...Object.fromEntries(new URLSearchParams(query)), holder: h.raw }),
        });
        if (!reply.ok) throw new Error((await reply.text()).trim());
        const { removed, problem } = await reply.json();
        say(problem ? "It was taken away, but its waiters were not woken: " + problem : removed ? "It was taken away." : "That holder does not have it any more: nothing was taken away.");
      } catch (e) {
        say("It was not taken away: " + e.message);
      }
      this.ask();
    };
    dialog.showModal();
  }
}

function heading(l) {
  const lease = l.ttl_ms === null ? "without a lease: it never ends by itself" : "its lease ends in " + span(l.ttl_ms) + " unless renewed";
  let text = "free";
  if (l.error) text = "";
  else if (l.kind === "count") text = `a count of ${l.count}: free permits of a semaphore, or what a latch waits for`;
  else if (l.kind === "permits") text = `a semaphore, free permits: ${l.available}, taken: ${l.holder_count}`;
  else if (l.locked) text = `${l.kind}, locked (${l.mode}), ${lease}`;
  if (l.queue) text += `; in the queue of the fair lock: ${l.queue}`;
  if (l.token) text += `; the last fencing token is ${l.token}`;
  return text;
}

function say(text) {
  put($("said"), text);
  clearTimeout(say.timer);
  say.timer = setTimeout(() => put($("said"), ""), 8000);
}
