"use strict";
// What the server sends: "reset" begins a state anew, "rows" changes some, "status" ends a publication and
// has the figures. A state that is begun anew is shown when it is whole.

let skew = 0; // the server's clock minus this one's
const clock = () => Date.now() + skew;
const table = new Table($("grid"), (id) => { location.hash = "lock/" + id; }, clock);
const view = new LockView();
let pending = null; // of a state that is begun anew
let last = null; // status

const stream = new EventSource("/api/events");
stream.onopen = () => { pending = null; connection(); };
stream.onerror = () => { pending = null; connection(); };
stream.addEventListener("reset", () => { pending = new Map(); });
stream.addEventListener("rows", (e) => {
  const { set, gone } = JSON.parse(e.data);
  const into = pending || table.rows;
  for (const r of set || []) table.set(r, into);
  for (const id of gone || []) into.delete(id);
  if (!pending) table.changed();
});
stream.addEventListener("status", (e) => {
  if (pending) { table.rows = pending; pending = null; }
  last = JSON.parse(e.data);
  skew = last.at - Date.now();
  table.changed();
  figures.add(last);
  drawStatus();
  drawEngines();
});

function connection() {
  put($("state"), stream.readyState === EventSource.OPEN ? "connected" : "no connection to pawl web: what you see may be old");
  if (stream.readyState === EventSource.CLOSED) put($("state"), "pawl web refuses this page: load it again");
}

function drawStatus() {
  put($("state"), `names ${last.pattern}, ${last.took_ms} ms a look, every ${Math.max(last.every_ms, 2 * last.took_ms) / 1000} s`);
  const wrong = [];
  if (last.error) wrong.push("The server cannot be asked: " + last.error);
  if (last.truncated) wrong.push("There are more locks than this page shows: start pawl web with a pattern.");
  if (last.not_asked) wrong.push("No engine could be asked, so waiters are not known: " + last.not_asked);
  if (last.silent) wrong.push(`${last.silent} engines listen and did not answer in time.`);
  put($("warning"), wrong.join(" "));
  $("warning").hidden = wrong.length === 0;
  put($("n-held"), last.locks.toLocaleString("en"));
  put($("n-waiting"), last.waiting.toLocaleString("en"));
}

table.onorder = () => {
  const n = table.shown.length, all = table.rows.size;
  put($("found"), n === all ? `${all.toLocaleString("en")} held` : `${n.toLocaleString("en")} of ${all.toLocaleString("en")}`);
  $("none").hidden = n > 0 || !last;
  put($("none"), all === 0 ? "Nothing is held." : "Nothing that is held matches.");
  $("by-name").hidden = !(last && table.query && n === 0);
};

// figures are the charts: the last five minutes, for as long as the page has been open.
const figures = {
  length: 300,
  charts: {},
  engines: new Map(),
  add(st) {
    const t = st.at / 1000, rate = this.at ? st.changes / Math.max(0.001, t - this.at) : 0;
    this.at = t;
    this.point("chart-held", $("chart-held"), t, st.locks);
    this.point("chart-waiting", $("chart-waiting"), t, st.waiting);
    this.point("chart-changes", $("chart-changes"), t, rate);
    put($("n-changes"), Math.round(rate).toLocaleString("en"));
  },
  point(key, el, t, value) {
    const c = this.charts[key] ||= { data: [[], []] };
    c.data[0].push(t);
    c.data[1].push(value);
    if (c.data[0].length > this.length) { c.data[0].shift(); c.data[1].shift(); }
    if (!el || el.clientWidth === 0) return;
    const style = getComputedStyle(document.documentElement), color = style.getPropertyValue("--accent").trim();
    if (c.plot && (c.color !== color || c.el !== el)) { c.plot.destroy(); c.plot = null; }
    if (!c.plot) {
      c.color = color;
      c.el = el;
      c.plot = new uPlot({
        width: el.clientWidth, height: 44, legend: { show: false }, cursor: { show: false }, padding: [4, 0, 4, 0],
        axes: [{ show: false }, { show: false }],
        scales: { x: { time: true }, y: { range: (_, low, high) => [0, Math.max(1, high)] } },
        series: [{}, { stroke: color, width: 1.5, fill: color + "22", points: { show: false } }],
      }, c.data, el);
    } else {
      if (c.plot.width !== el.clientWidth) c.plot.setSize({ width: el.clientWidth, height: 44 });
      c.plot.setData(c.data);
    }
  },
};

// drawEngines has a card for each engine, which stays as long as the engine answers.
function drawEngines() {
  const seen = new Set();
  for (const e of last.engines) {
    seen.add(e.id);
    let card = figures.engines.get(e.id);
    if (!card) {
      card = { li: make("li"), who: make("p"), id: make("p", e.id, "id"), labels: make("p"), counts: make("p"), chart: make("div") };
      card.li.append(card.who, card.labels, card.counts, card.chart, card.id);
      figures.engines.set(e.id, card);
      $("engine-list").append(card.li);
    }
    put(card.who, who(e));
    put(card.labels, Object.entries(e.labels || {}).map(([k, v]) => `“${k}” = “${v}”`).join(", "));
    put(card.counts, `holds ${e.held.toLocaleString("en")}, waits for ${e.waiting.toLocaleString("en")}`);
    figures.point("engine " + e.id, card.chart, last.at / 1000, e.held);
  }
  for (const [id, card] of figures.engines) {
    if (seen.has(id)) continue;
    card.li.remove();
    figures.charts["engine " + id]?.plot?.destroy();
    delete figures.charts["engine " + id];
    figures.engines.delete(id);
  }
  $("engine-none").hidden = seen.size > 0;
}

// The address says which view is open: #, #engines, #lock/ID, #name/NAME.
function route() {
  const [what, ...rest] = location.hash.slice(1).split("/");
  const arg = rest.join("/");
  const open = what === "engines" ? "engines" : (what === "lock" || what === "name") && arg ? "lock" : "locks";
  for (const id of ["locks", "lock", "engines"]) $(id).hidden = id !== open;
  for (const id of ["locks", "engines"]) {
    if (id === open) $("nav-" + id).setAttribute("aria-current", "page");
    else $("nav-" + id).removeAttribute("aria-current");
  }
  view.show(open !== "lock" ? null : what === "lock" ? "id=" + encodeURIComponent(arg) : "name=" + arg);
  if (open === "lock") $("lock-title").focus();
  if (open === "engines" && last) drawEngines();
  if (open === "locks") { table.later(); if (route.before && route.before !== "locks") $("grid").focus(); }
  route.before = open;
}

addEventListener("hashchange", route);
addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || $("confirm").open) return;
  if (e.key === "/" && !(e.target instanceof HTMLInputElement)) {
    e.preventDefault();
    if ($("locks").hidden) location.hash = "";
    setTimeout(() => $("search").focus(), $("locks").hidden ? 50 : 0); // when the view is open
  } else if (e.key === "Escape") {
    if (!$("locks").hidden) { $("search").value = ""; table.search(""); $("grid").focus(); }
    else location.hash = "";
  } else if (e.key === "ArrowDown" && e.target === $("search")) {
    e.preventDefault();
    $("grid").focus();
  }
});
$("search").addEventListener("input", () => table.search($("search").value));
$("by-name").addEventListener("click", () => { location.hash = "name/" + encodeURIComponent($("search").value); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (last) figures.add(last); });
setInterval(() => { if (!document.hidden && !$("locks").hidden) table.later(); }, 1000);
connection();
route();
