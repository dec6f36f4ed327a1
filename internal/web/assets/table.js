"use strict";
// The table of locks. Of 10,000 rows only those on the screen are elements, and these are used again
// as the table scrolls. Every text is set as text content: none is ever read as HTML.

const columns = [
  { key: "name", title: "Lock", of: (r) => r.n },
  { key: "kind", title: "Kind", of: (r) => r.m ? r.k + ", " + r.m : r.k },
  { key: "holder", title: "Holder", of: (r) => r.who },
  { key: "since", title: "Held for", number: true, of: (r) => -r.s },
  { key: "lease", title: "Lease left", number: true, of: (r) => r.l || Infinity },
  { key: "waiting", title: "Waiting", number: true, of: (r) => r.w },
];

class Table {
  // open is called with the row that somebody has chosen; clock says what the server's time is, in ms.
  constructor(grid, open, clock) {
    this.grid = grid;
    this.body = grid.querySelector("#body");
    this.open = open;
    this.clock = clock;
    this.rows = new Map(); // by id
    this.shown = []; // in their order
    this.slots = []; // elements
    this.query = "";
    this.sort = { column: columns[0], down: false };
    this.chosen = null; // id
    this.dirty = true;
    this.sortedAt = 0;
    this.makeHead();
    grid.addEventListener("scroll", () => this.later(), { passive: true });
    grid.addEventListener("keydown", (e) => this.key(e));
    new ResizeObserver(() => this.later()).observe(grid);
  }

  makeHead() {
    const head = this.grid.querySelector("#head .cells");
    for (const c of columns) {
      const cell = document.createElement("div");
      cell.setAttribute("role", "columnheader");
      if (c.number) cell.className = "number";
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = c.title;
      button.addEventListener("click", () => {
        this.sort = { column: c, down: this.sort.column === c ? !this.sort.down : c.key === "waiting" };
        this.markSort();
        this.changed(true);
      });
      cell.append(button);
      head.append(cell);
      c.head = cell;
    }
    this.markSort();
  }

  markSort() {
    for (const c of columns) {
      c.head.setAttribute("aria-sort", c !== this.sort.column ? "none" : this.sort.down ? "descending" : "ascending");
    }
  }

  // set takes a row as the server sends it.
  set(r, into = this.rows) {
    r.who = r.h.length === 0 ? "" : who(r.h[0]) + (r.c ? ` and ${r.c - 1} more` : r.h.length > 1 ? ` and ${r.h.length - 1} more` : "");
    r.text = (r.n + "\n" + r.k + "\n" + (r.m || "") + "\n" + r.h.map((h) => `${h.id} ${h.service || ""} ${h.host || ""} ${h.pid || ""}`).join("\n")).toLowerCase();
    into.set(r.i, r);
  }

  search(text) {
    this.query = text.toLowerCase();
    this.grid.scrollTop = 0;
    this.changed(true);
  }

  // changed has the order found anew. Thousands of rows are sorted four times a second at most.
  changed(now) {
    this.dirty = true;
    if (now) this.sortedAt = 0;
    this.later();
  }

  later() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  order() {
    const words = this.query.split(/\s+/).filter(Boolean);
    const all = [];
    for (const r of this.rows.values()) {
      if (words.every((w) => r.text.includes(w))) all.push(r);
    }
    const of = this.sort.column.of, sign = this.sort.down ? -1 : 1;
    for (const r of all) r.key = of(r);
    all.sort((a, b) => a.key < b.key ? -sign : a.key > b.key ? sign : a.n < b.n ? -1 : a.n > b.n ? 1 : a.i < b.i ? -1 : 1);
    this.shown = all;
    this.grid.setAttribute("aria-rowcount", String(all.length + 1));
    this.onorder?.();
  }

  draw() {
    if (this.grid.offsetParent === null) return;
    const now = performance.now();
    if (this.dirty) {
      if (now - this.sortedAt < 250) {
        this.timer ||= setTimeout(() => { this.timer = 0; this.later(); }, 250);
      } else {
        this.sortedAt = now;
        this.dirty = false;
        this.order();
      }
    }
    const height = parseFloat(getComputedStyle(this.grid).getPropertyValue("--row")) || 36;
    this.height = height;
    this.body.style.height = this.shown.length * height + "px";
    const first = Math.max(0, Math.floor(this.grid.scrollTop / height) - 3);
    const count = Math.min(this.shown.length - first, Math.ceil(this.grid.clientHeight / height) + 6);
    for (let i = 0; i < Math.max(count, this.slots.length); i++) {
      if (i >= count) { this.slots[i].hidden = true; continue; }
      this.fill(this.slots[i] || this.slot(i), this.shown[first + i], first + i, height);
    }
    const chosen = this.slots.find((s) => !s.hidden && s.lock === this.chosen);
    if (chosen) this.grid.setAttribute("aria-activedescendant", chosen.id);
    else this.grid.removeAttribute("aria-activedescendant");
  }

  slot(i) {
    const el = document.createElement("div");
    el.className = "cells";
    el.id = "row-" + i;
    el.setAttribute("role", "row");
    for (const c of columns) {
      const cell = document.createElement("div");
      cell.setAttribute("role", "gridcell");
      if (c.number) cell.className = "number";
      el.append(cell);
    }
    el.addEventListener("click", () => { this.chosen = el.lock; this.open(el.lock); });
    this.body.append(el);
    return this.slots[i] = el;
  }

  fill(el, r, index, height) {
    const now = this.clock();
    const texts = [r.n, columns[1].of(r), r.who, (r.a ? "> " : "") + span(now - r.s), r.l ? span(r.l - now) : "none", r.w ? String(r.w) : "0"];
    for (let i = 0; i < texts.length; i++) put(el.children[i], texts[i]);
    el.children[5].classList.toggle("some", r.w > 0);
    const top = index * height + "px";
    if (el.style.top !== top) el.style.top = top;
    if (el.lock !== r.i) { el.lock = r.i; el.children[0].title = r.n; }
    el.setAttribute("aria-rowindex", String(index + 2));
    el.classList.toggle("chosen", r.i === this.chosen);
    el.setAttribute("aria-selected", String(r.i === this.chosen));
    el.hidden = false;
  }

  key(e) {
    if (e.target !== this.grid || e.ctrlKey || e.metaKey || e.altKey) return;
    const page = Math.max(1, Math.floor(this.grid.clientHeight / this.height) - 2), last = this.shown.length - 1;
    let at = this.shown.findIndex((r) => r.i === this.chosen);
    switch (e.key) {
      case "ArrowDown": at++; break;
      case "ArrowUp": at--; break;
      case "PageDown": at += page; break;
      case "PageUp": at -= page; break;
      case "Home": at = 0; break;
      case "End": at = last; break;
      case "Enter": if (at >= 0) { e.preventDefault(); this.open(this.chosen); } return;
      default: return;
    }
    e.preventDefault();
    if (last < 0) return;
    at = Math.min(last, Math.max(0, at));
    this.chosen = this.shown[at].i;
    const head = this.grid.querySelector("#head").offsetHeight, top = at * this.height;
    if (top < this.grid.scrollTop) this.grid.scrollTop = top;
    if (top + this.height + head > this.grid.scrollTop + this.grid.clientHeight) this.grid.scrollTop = top + this.height + head - this.grid.clientHeight;
    this.later();
  }
}

// who is a holder: what its engine says of itself is in quotes.
function who(h) {
  return h.service || h.host ? `“${h.service || ""}” on “${h.host || ""}”, pid ${h.pid}` : h.id;
}

// put sets a text, and touches nothing if it is the same.
function put(el, text) {
  if (el.textContent !== text) el.textContent = text;
}

// span is a duration as people read it.
function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + (s % 60) + " s";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor(s % 86400 / 3600) + " h";
}
