// Tables of trials and of runs: only the rows in sight are elements, so that 10,000 scroll without a stutter.

const ROW_HEIGHT = 32;
const SPARE_ROWS = 12;
const MOST_HEIGHT = 460;
const MOST_COLUMNS = 60;
const MEASURED_ROWS = 400; // of more, a longer cell further down is cut, and its title has the whole
const WIDEST = { number: 240, text: 640, status: 140, moment: 190, duration: 120, run: 300 };
const LEFT = new Set(["text", "status", "run"]);
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
  if (column.kind === "run") cells += 30; // the box to choose it
  return Math.ceil(Math.max(56, Math.min(WIDEST[column.kind], cells + 24), Math.min(HEADING, words) + 24));
}

// The names of parameters or metrics, those that most rows have first.
function namesIn(rows, get) {
  const counts = new Map();
  for (const row of rows) for (const name in get(row) || {}) counts.set(name, (counts.get(name) || 0) + 1);
  return [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a));
}

function plain(name, get, kind, title) {
  return { name, title: title || name, get, kind: kind || "number" };
}

// The columns in which any row has something, and the first ones.
function shownColumns(all, rows, always) {
  const some = (get) => rows.some((row) => get(row) !== undefined && get(row) !== null && get(row) !== "");
  const shown = all.filter((column, place) => place < always || some(column.get)).slice(0, MOST_COLUMNS);
  return shown.map((column) => ({ ...column, width: columnWidth(column, rows) }));
}

function trialColumns(doc) {
  const { metric } = doc.headline.run;
  const params = namesIn(doc.trials, (row) => row.params);
  const metrics = namesIn(doc.trials, (row) => row.metrics).sort((a, b) => (b === metric) - (a === metric));
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
  return shownColumns(all, doc.trials, 2);
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

// What a table shows comes from `source`: rows() and columns(), status(row), key(row), tie(a, b), open(row), order, which
// is the sort at the start, best(column), whether the largest value is the best one, and the words of its labels.
class RowTable {
  constructor(source) {
    this.source = source;
    this.sort = source.order;
    this.status = "";
    this.at = 0;
    this.search = h("input", { type: "search", placeholder: source.words.example, "aria-label": `Filter ${source.words.noun}s`, oninput: () => this.later() });
    this.select = h("select", { "aria-label": source.words.status, onchange: () => this.pick() });
    this.shown = h("span", { class: "muted", "aria-live": "polite" });
    this.head = h("div", { class: "thead", role: "row" });
    this.rows = h("div", { class: "rows", role: "rowgroup" });
    this.inner = h("div", { class: "tinner" }, this.head, this.rows);
    this.box = h("div", { class: "table", role: "grid", tabindex: "0", "aria-label": source.words.grid, onscroll: () => this.frame(), onkeydown: (event) => this.key(event) }, this.inner);
    this.tools = h("div", { class: "tools" }, this.search, this.select, this.shown);
    this.element = h("div", {}, this.tools, this.box);
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

  // After a change of the rows.
  refresh() {
    const rows = this.source.rows();
    const counts = {};
    for (const row of rows) counts[this.source.status(row)] = (counts[this.source.status(row)] || 0) + 1;
    const options = Object.entries(counts).map(([status, many]) => h("option", { value: status, selected: status === this.status }, `${status} (${many})`));
    this.select.replaceChildren(h("option", { value: "" }, `All (${rows.length})`), ...options);
    this.columns = this.source.columns();
    this.width = this.columns.reduce((sum, column) => sum + column.width, 0);
    this.drawHead();
    this.apply();
  }

  drawHead() {
    this.head.replaceChildren(...this.columns.map((column) => {
      const mine = column.name === this.sort.name;
      const arrow = mine ? (this.sort.down ? " ↓" : " ↑") : "";
      const cell = h("button", {
        type: "button", role: "columnheader", class: `th ${LEFT.has(column.kind) ? "" : "right"} ${column.group || ""}`, title: column.title,
        "aria-sort": mine ? (this.sort.down ? "descending" : "ascending") : "none", onclick: () => this.order(column),
      }, h("span", {}, `${column.name}${arrow}`));
      cell.style.width = `${column.width}px`;
      return cell;
    }));
  }

  order(column) {
    const again = this.sort.name === column.name;
    this.sort = { name: column.name, down: again ? !this.sort.down : this.source.best(column) };
    this.drawHead();
    this.apply();
  }

  apply() {
    const keeps = filterOf(this.search.value, this.columns);
    const column = this.columns.find((each) => each.name === this.sort.name) || this.columns[0];
    const sign = this.sort.down ? -1 : 1;
    const found = this.source.rows().filter((row) => (!this.status || this.source.status(row) === this.status) && keeps(row));
    const empty = (value) => value === undefined || value === null || value === "";
    const keyed = found.map((row) => [column.get(row), row]); // each value is computed once, and not for each comparison
    keyed.sort(([one, a], [other, b]) => (empty(one) || empty(other) ? compare(one, other) : sign * compare(one, other)) || this.source.tie(a, b));
    this.found = keyed.map(([, row]) => row);
    this.at = Math.min(this.at, Math.max(0, found.length - 1));
    this.rows.style.height = `${found.length * ROW_HEIGHT}px`;
    this.inner.style.width = `${this.width}px`;
    this.drawn = null;
    this.fit();
  }

  // Depends on sizes, which are 0 until the table is in the document.
  fit() {
    const [matches, all] = [this.found.length, this.source.rows().length];
    const wide = this.box.clientWidth && this.width > this.box.clientWidth + 2 ? ` · ${this.columns.length} columns, scroll sideways` : "";
    this.shown.textContent = (matches === all ? count(matches, this.source.words.noun) : `${matches.toLocaleString("en")} of ${count(all, this.source.words.noun)}`) + wide;
    this.box.style.height = `${Math.min(this.source.height || MOST_HEIGHT, matches * ROW_HEIGHT + this.head.offsetHeight + 18)}px`;
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

  // The rows in sight again, where their values have changed and their order has not.
  redraw() {
    this.drawn = null;
    this.draw();
  }

  rowOf(place) {
    const row = this.found[place];
    const cells = this.columns.map((column) => {
      const value = column.get(row);
      const text = cellText(column, value);
      const right = !LEFT.has(column.kind) && typeof value !== "string";
      const cell = h("span", { class: `td ${right ? "right" : ""}`, role: "gridcell", title: text.length > 12 ? short(text, 400) : null }, column.draw ? column.draw(row, text) : column.kind === "status" ? chip(text) : short(text, 120));
      cell.style.width = `${column.width}px`;
      return cell;
    });
    const line = h("div", { class: `tr ${place === this.at ? "at" : ""} ${this.source.first(row) ? "first" : ""}`, role: "row", [`data-${this.source.words.noun}`]: this.source.key(row), onclick: () => { this.at = place; this.draw(); this.source.open(row); } }, cells);
    line.style.top = `${place * ROW_HEIGHT}px`;
    return line;
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / ROW_HEIGHT) - 2);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.target !== this.box) return;
    const row = this.found[this.at];
    if (event.key === "Enter" && row) {
      event.preventDefault();
      this.source.open(row);
    } else if (event.key === " " && row && this.source.choose) {
      event.preventDefault();
      this.source.choose(row);
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

function trialTable(ctx) {
  const { run } = ctx.doc.headline;
  return new RowTable({
    rows: () => ctx.doc.trials,
    columns: () => trialColumns(ctx.doc),
    status: (row) => row.status,
    key: (row) => row.id,
    first: (row) => row.place === 0,
    tie: (a, b) => a.id - b.id,
    open: (row) => ctx.open(row.id),
    order: { name: ctx.doc.trials.some((row) => row.place !== undefined) ? "place" : "trial", down: false },
    best: (column) => column.name === run.metric && run.mode === "max",
    words: { noun: "trial", status: "Status", grid: "Trials; arrow keys move, Enter opens", example: "Filter: adam, lr<0.01, host=node-3 …" },
  });
}
