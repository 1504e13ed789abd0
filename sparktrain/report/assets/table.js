// The table of trials: only the rows in sight are elements, so that 10,000 scroll without a stutter.

const ROW_HEIGHT = 32;
const SPARE_ROWS = 12;
const MOST_HEIGHT = 460;
const MOST_COLUMNS = 60;
const MEASURED_ROWS = 400; // of more, a longer cell further down is cut, and its title has the whole
const WIDEST = { number: 240, text: 640, status: 140, moment: 190, duration: 120 };
const HEADING = 150; // a longer heading takes several lines

// The room for a heading with the arrow of its order, and for the widest cell.
function columnWidth(column, rows) {
  const words = textWidth(`${column.name} ↓`, "600 12px");
  let cells = 0;
  let longest = "";
  for (const row of rows.slice(0, MEASURED_ROWS)) {
    const text = cellText(column, column.get(row));
    if (text.length + 2 < longest.length) continue; // digits and letters are about as wide as each other
    if (text.length > longest.length) longest = text;
    cells = Math.max(cells, textWidth(short(text, 120), column.kind === "text" ? "13px" : "600 13px"));
  }
  if (column.kind === "status") cells += 36; // the mark and the edges of a chip
  return Math.ceil(Math.max(56, Math.min(WIDEST[column.kind], cells + 24), Math.min(HEADING, words) + 24));
}

function columnsOf(doc) {
  const { metric } = doc.headline.run;
  const names = (key) => {
    const found = new Set();
    for (const row of doc.trials) for (const name in row[key] || {}) found.add(name);
    return [...found];
  };
  const params = names("params");
  const metrics = names("metrics").sort((a, b) => (b === metric) - (a === metric));
  const plain = (name, get, kind) => ({ name, title: name, get, kind: kind || "number" });
  const some = (get) => doc.trials.some((row) => get(row) !== undefined && get(row) !== null && get(row) !== "");
  const all = [
    plain("trial", (row) => row.id),
    plain("status", (row) => row.status, "status"),
    plain("place", (row) => (row.place === undefined ? undefined : row.place + 1)),
    ...metrics.map((name) => ({ name, title: `metric ${name}`, get: (row) => row.metrics?.[name], kind: "number", group: "metric" })),
    ...params.map((name) => ({ name, title: `parameter ${name}`, get: (row) => row.params?.[name], kind: "number", group: "param" })),
    plain("step", (row) => row.step),
    plain("time", (row) => row.seconds, "duration"),
    plain("started", (row) => row.started, "moment"),
    plain("host", (row) => row.details.host, "text"),
    plain("restarts", (row) => (row.details.restarts ? row.details.restarts.length : undefined)),
    plain("error", (row) => row.details.error || row.details.pruned, "text"),
  ];
  const shown = all.filter((column) => column.name === "trial" || column.name === "status" || some(column.get)).slice(0, MOST_COLUMNS);
  return shown.map((column) => ({ ...column, width: columnWidth(column, doc.trials) }));
}

function cellText(column, value) {
  if (value === undefined || value === null) return "";
  if (column.kind === "duration") return duration(value);
  if (column.kind === "moment") return moment(value);
  return typeof value === "number" ? number(value) : asText(value);
}

function compare(a, b) {
  const [none, other] = [a === undefined || a === null || a === "", b === undefined || b === null || b === ""];
  if (none || other) return none - other;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return asText(a) < asText(b) ? -1 : asText(a) > asText(b) ? 1 : 0;
}

// "lr<0.01 status=failed adam": conditions on columns, and words that any cell has.
function filterOf(text, columns) {
  const tests = text.trim().split(/\s+/).filter(Boolean).map((word) => {
    const parts = /^(.+?)(<=|>=|!=|=|<|>)(.+)$/.exec(word);
    const column = parts && columns.find((each) => each.name.toLowerCase() === parts[1].toLowerCase());
    if (column) return conditionOf(column, parts[2], parts[3]);
    const wanted = word.toLowerCase();
    return (row) => columns.some((each) => cellText(each, each.get(row)).toLowerCase().includes(wanted));
  });
  return (row) => tests.every((test) => test(row));
}

function conditionOf(column, sign, text) {
  const wanted = Number(text);
  return (row) => {
    const value = column.get(row);
    if (sign === "=" || sign === "!=") {
      const same = typeof value === "number" ? value === wanted : asText(value).toLowerCase() === text.toLowerCase();
      return same === (sign === "=");
    }
    if (typeof value !== "number" || Number.isNaN(wanted)) return false;
    return sign === "<" ? value < wanted : sign === ">" ? value > wanted : sign === "<=" ? value <= wanted : value >= wanted;
  };
}

class TrialTable {
  constructor(ctx) {
    this.ctx = ctx;
    this.sort = { name: ctx.doc.trials.some((row) => row.place !== undefined) ? "place" : "trial", down: false };
    this.status = "";
    this.at = 0;
    this.search = h("input", { type: "search", placeholder: "Filter: adam, lr<0.01, host=node-3 …", "aria-label": "Filter trials", oninput: () => this.later() });
    this.select = h("select", { "aria-label": "Status", onchange: () => this.pick() });
    this.shown = h("span", { class: "muted", "aria-live": "polite" });
    this.head = h("div", { class: "thead", role: "row" });
    this.rows = h("div", { class: "rows", role: "rowgroup" });
    this.inner = h("div", { class: "tinner" }, this.head, this.rows);
    this.box = h("div", { class: "table", role: "grid", tabindex: "0", "aria-label": "Trials; arrow keys move, Enter opens", onscroll: () => this.frame(), onkeydown: (event) => this.key(event) }, this.inner);
    this.element = h("div", {}, h("div", { class: "tools" }, this.search, this.select, this.shown), this.box);
    const sizes = new ResizeObserver(() => this.fit());
    for (const part of [this.box, this.head]) sizes.observe(part);
    this.refresh();
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.apply(), 120);
  }

  pick() {
    this.status = this.select.value;
    this.apply();
  }

  // After a change of the document.
  refresh() {
    const counts = {};
    for (const row of this.ctx.doc.trials) counts[row.status] = (counts[row.status] || 0) + 1;
    const options = Object.entries(counts).map(([status, many]) => h("option", { value: status, selected: status === this.status }, `${status} (${many})`));
    this.select.replaceChildren(h("option", { value: "" }, `All (${this.ctx.doc.trials.length})`), ...options);
    this.columns = columnsOf(this.ctx.doc);
    this.width = this.columns.reduce((sum, column) => sum + column.width, 0);
    this.drawHead();
    this.apply();
  }

  drawHead() {
    this.head.replaceChildren(...this.columns.map((column) => {
      const mine = column.name === this.sort.name;
      const arrow = mine ? (this.sort.down ? " ↓" : " ↑") : "";
      const cell = h("button", {
        type: "button", role: "columnheader", class: `th ${column.kind === "text" || column.kind === "status" ? "" : "right"} ${column.group || ""}`, title: column.title,
        "aria-sort": mine ? (this.sort.down ? "descending" : "ascending") : "none", onclick: () => this.order(column),
      }, h("span", {}, `${column.name}${arrow}`));
      cell.style.width = `${column.width}px`;
      return cell;
    }));
  }

  order(column) {
    const again = this.sort.name === column.name;
    const best = column.name === this.ctx.doc.headline.run.metric && this.ctx.doc.headline.run.mode === "max";
    this.sort = { name: column.name, down: again ? !this.sort.down : best };
    this.drawHead();
    this.apply();
  }

  apply() {
    const keeps = filterOf(this.search.value, this.columns);
    const column = this.columns.find((each) => each.name === this.sort.name) || this.columns[0];
    const sign = this.sort.down ? -1 : 1;
    const found = this.ctx.doc.trials.filter((row) => (!this.status || row.status === this.status) && keeps(row));
    const empty = (value) => value === undefined || value === null || value === "";
    this.found = found.sort((a, b) => {
      const [one, other] = [column.get(a), column.get(b)];
      return empty(one) || empty(other) ? compare(one, other) || a.id - b.id : sign * compare(one, other) || a.id - b.id;
    });
    this.at = Math.min(this.at, Math.max(0, found.length - 1));
    this.rows.style.height = `${found.length * ROW_HEIGHT}px`;
    this.inner.style.width = `${this.width}px`;
    this.drawn = null;
    this.fit();
  }

  // Depends on sizes, which are 0 until the table is in the document.
  fit() {
    const [matches, trials] = [this.found.length, this.ctx.doc.trials.length];
    const wide = this.box.clientWidth && this.width > this.box.clientWidth + 2 ? ` · ${this.columns.length} columns, scroll sideways` : "";
    this.shown.textContent = (matches === trials ? count(matches, "trial") : `${matches.toLocaleString("en")} of ${count(trials, "trial")}`) + wide;
    this.box.style.height = `${Math.min(MOST_HEIGHT, matches * ROW_HEIGHT + this.head.offsetHeight + 18)}px`;
    this.draw();
  }

  frame() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); });
  }

  draw() {
    const high = this.box.clientHeight || MOST_HEIGHT;
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW_HEIGHT) - SPARE_ROWS);
    const last = Math.min(this.found.length, Math.ceil((this.box.scrollTop + high) / ROW_HEIGHT) + SPARE_ROWS);
    const key = `${first} ${last} ${this.at}`;
    if (key === this.drawn) return;
    this.drawn = key;
    const made = [];
    for (let place = first; place < last; place++) made.push(this.rowOf(place));
    this.rows.replaceChildren(...made);
  }

  rowOf(place) {
    const row = this.found[place];
    const cells = this.columns.map((column) => {
      const value = column.get(row);
      const text = cellText(column, value);
      const right = column.kind !== "text" && column.kind !== "status" && typeof value !== "string";
      const cell = h("span", { class: `td ${right ? "right" : ""}`, role: "gridcell", title: text.length > 12 ? short(text, 400) : null }, column.kind === "status" ? chip(text) : short(text, 120));
      cell.style.width = `${column.width}px`;
      return cell;
    });
    const line = h("div", { class: `tr ${place === this.at ? "at" : ""} ${row.place === 0 ? "first" : ""}`, role: "row", "data-trial": row.id, onclick: () => { this.at = place; this.draw(); this.ctx.open(row.id); } }, cells);
    line.style.top = `${place * ROW_HEIGHT}px`;
    return line;
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / ROW_HEIGHT) - 2);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.target !== this.box) return;
    if (event.key === "Enter" && this.found[this.at]) {
      event.preventDefault();
      this.ctx.open(this.found[this.at].id);
    } else if (event.key in moves && this.found.length) {
      event.preventDefault();
      this.at = Math.min(this.found.length - 1, Math.max(0, this.at + moves[event.key]));
      const [top, high] = [this.at * ROW_HEIGHT, this.box.clientHeight - this.head.offsetHeight - 18];
      if (top < this.box.scrollTop) this.box.scrollTop = top;
      if (top > this.box.scrollTop + high - ROW_HEIGHT) this.box.scrollTop = top - high + ROW_HEIGHT;
      this.draw();
    }
  }
}
