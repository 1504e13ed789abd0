// The page of several runs: their table, and which of them are compared.

const MOST_COMPARED = 26;
const SETTLE_MS = 400;
const TICK_MS = 5000; // durations of runs that train
const RUN_WORDS = { noun: "run", status: "State", grid: "Runs; arrow keys move, Enter opens, space chooses for a comparison", example: "Filter: mnist, state=running, owner=ada, lr<0.01 …" };

function runSeconds(row) {
  const { seconds, since } = row.clock;
  return (seconds || 0) + (since ? Math.max(0, Date.now() / 1000 - since) : 0);
}

function runTrials(row) {
  return Object.values(row.counts || {}).reduce((sum, each) => sum + each, 0);
}

function runDone(row) {
  const open = ["queued", "running", "paused"];
  return Object.entries(row.counts || {}).reduce((sum, [status, many]) => sum + (open.includes(status) ? 0 : many), 0);
}

function runFailed(row) {
  return (row.counts?.failed || 0) + (row.counts?.lost || 0);
}

// The colour of a state: those of trials stand for the same words.
function runStatus(row) {
  return row.state === "driver gone" ? "lost" : row.state === "unreadable" ? "failed" : row.state;
}

function runColumns(ctx) {
  const rows = ctx.doc.rows;
  const usual = rows.length && rows.every((row) => row.label.metric === rows[0].label.metric);
  const all = [
    { ...plain("run", (row) => row.label.name, "run"), draw: (row, text) => ctx.nameCell(row, text) },
    { ...plain("state", (row) => row.state, "status"), draw: (row, text) => chip(runStatus(row), text) },
    plain("best", (row) => row.best?.value, "number", "value of the best trial, by the run's own metric"),
    usual ? null : plain("metric", (row) => row.label.metric, "text", "what trials are compared by"),
    plain("owner", (row) => row.owner?.user, "text", "who started the newest driver"),
    plain("started", (row) => row.clock?.started, "moment"),
    plain("duration", (row) => (row.state === "unreadable" ? undefined : runSeconds(row)), "duration", "how long drivers have run it"),
    plain("trials", (row) => (row.state === "unreadable" ? undefined : runDone(row)), "number", "trials that have ended"),
    plain("of", (row) => row.total, "number", "how many trials there will be"),
    plain("failed", (row) => runFailed(row) || undefined, "number", "trials that failed or were lost"),
    plain("slots", (row) => row.slots?.per_trial ?? (row.state === "unreadable" ? undefined : 1), "number", "slots that each trial takes"),
    plain("in use", (row) => row.slots?.busy, "number", "slots that its members hold now"),
    plain("restarts", (row) => row.restarts, "number", "of gangs and members, in all trials"),
    plain("kind", (row) => row.label.kind, "text"),
    ...namesIn(rows, (row) => row.best?.params).map((name) => ({ name, title: `parameter ${name} of the best trial`, get: (row) => row.best?.params?.[name], kind: "number", group: "param" })),
    ...namesIn(rows, (row) => row.best?.metrics).map((name) => ({ name: `metric ${name}`, title: `${name} of the best trial`, get: (row) => row.best?.metrics?.[name], kind: "number", group: "metric" })),
    plain("function", (row) => row.label.function, "text"),
    plain("host", (row) => row.owner?.host, "text", "host of the newest driver"),
    plain("sparktrain", (row) => row.owner?.sparktrain, "text", "version of the newest driver"),
    plain("problem", (row) => row.problem, "text"),
  ].filter(Boolean);
  return shownColumns(all, rows, 2);
}

class RunsPage {
  constructor(doc) {
    this.doc = doc;
    this.chosen = new Set();
    this.index();
    this.live = doc.live ? new LiveLink(this) : null;
    if (this.live) this.live.last = doc.event || 0;
    this.pane = new RunPane(this);
    this.comparison = new ComparedRuns(this);
  }

  index() {
    this.byId = new Map(this.doc.rows.map((row) => [row.id, row]));
    this.lineage = new Lineage(this.doc.rows);
  }

  row(id) {
    return this.byId.get(id);
  }

  open(id) {
    this.pane.open(id);
  }

  draw() {
    document.title = `${this.doc.directory} – sparktrain`;
    this.header = h("div", {});
    this.compareButton = h("button", { type: "button", onclick: () => this.compare() });
    this.clearButton = h("button", { type: "button", class: "quiet", onclick: () => this.clear() }, "Choose none");
    this.table = new RowTable({
      rows: () => this.doc.rows,
      columns: () => runColumns(this),
      status: (row) => row.state,
      key: (row) => row.id,
      first: () => false,
      tie: (a, b) => (a.id < b.id ? -1 : 1),
      open: (row) => this.open(row.id),
      choose: (row) => this.choose(row.id),
      order: { name: "started", down: true },
      best: (column) => ["started", "duration", "restarts", "in use", "failed"].includes(column.name) || (column.name === "best" && this.doc.rows.some((row) => row.label.mode !== "min")),
      height: Math.max(360, innerHeight - 250),
      words: RUN_WORDS,
    });
    this.table.tools.append(this.compareButton, this.clearButton);
    this.lines = h("div", { class: "card-body" });
    this.linesCard = h("section", { class: "card", id: "lineage" }, h("h2", {}, "Lineage"), this.lines);
    this.main = h("main", { class: "wide" }, this.header, h("section", { class: "card", id: "runs" }, this.table.element), this.linesCard);
    document.getElementById("app").replaceChildren(this.main, this.comparison.element, this.pane.element, tip);
    this.drawHeader();
    this.drawChosen();
    this.drawLineage();
    this.route();
    document.body.dataset.ready = "yes";
    addEventListener("hashchange", () => this.route());
    setInterval(() => { if (!document.hidden && this.doc.rows.some((row) => row.clock?.since)) this.table.redraw(); }, TICK_MS);
  }

  // The comparison has an address of its own, so that the browser's back button leaves it.
  route() {
    const match = /^#compare=(.+)$/.exec(location.hash);
    const ids = match ? match[1].split(",").map((part) => { try { return decodeURIComponent(part); } catch { return part; } }) : [];
    if (ids.length) this.comparison.show(ids.slice(0, MOST_COMPARED));
    else this.comparison.hide();
    this.main.hidden = ids.length > 0;
    if (!ids.length) this.table.fit();
  }

  compare(ids) {
    location.hash = `compare=${(ids || [...this.chosen]).map(encodeURIComponent).join(",")}`;
  }

  choose(id) {
    if (!this.chosen.delete(id) && this.chosen.size < MOST_COMPARED) this.chosen.add(id);
    this.drawChosen();
    this.table.redraw();
  }

  clear() {
    this.chosen.clear();
    this.drawChosen();
    this.table.redraw();
  }

  drawChosen() {
    const many = this.chosen.size;
    this.compareButton.disabled = !many;
    this.compareButton.textContent = many ? `Compare ${count(many, "run")}` : "Choose runs to compare";
    this.clearButton.hidden = !many;
  }

  nameCell(row, text) {
    const box = h("input", { type: "checkbox", tabindex: "-1", "aria-label": `Choose ${text}`, onclick: (event) => { event.stopPropagation(); this.choose(row.id); } });
    box.checked = this.chosen.has(row.id);
    return h("span", { class: "choice" }, box, h("span", { class: "run-name" }, short(text, 120)));
  }

  drawHeader() {
    const { rows, left_out: others, unread, directory, live, made, sparktrain } = this.doc;
    const of = (test) => rows.filter(test).length;
    const tile = (name, value, small) => h("div", { class: "tile" }, h("div", { class: "tile-name" }, name), h("div", { class: "tile-value" }, value.toLocaleString("en")), h("div", { class: "tile-small" }, small || ""));
    const running = of((row) => row.state === "running");
    const busy = rows.reduce((sum, row) => sum + (row.slots?.busy || 0), 0);
    const unreadable = of((row) => row.state === "unreadable");
    this.header.replaceChildren(h("header", { class: "head" },
      h("div", { class: "title" }, h("h1", {}, directory)),
      unread > 0 && h("p", { class: "note" }, `reading ${count(unread, "run")} …`),
      h("div", { class: "tiles" },
        tile("runs", rows.length, others ? `${count(others, "other entry").replace("entrys", "entries")} left out` : ""),
        tile("running", running, busy ? `${count(busy, "slot")} in use` : ""),
        tile("succeeded", of((row) => row.state === "succeeded")),
        tile("failed or lost", of((row) => row.state === "failed" || row.state === "lost"), of((row) => row.state === "driver gone") ? `${count(of((row) => row.state === "driver gone"), "run")} without a driver` : ""),
        unreadable > 0 && tile("unreadable", unreadable, "see the column problem")),
      h("p", { class: "made" }, live ? h("span", { id: "link" }, "live") : `made ${moment(made)} by sparktrain ${sparktrain}`)));
    if (this.live && this.live.text) this.live.say(this.live.text);
  }

  drawLineage() {
    const parts = this.lineage.parts();
    this.linesCard.hidden = !parts.length;
    this.lines.replaceChildren(...parts.slice(0, MOST_PARTS).map((part) => lineageGraph(this, part)), parts.length > MOST_PARTS ? h("p", { class: "muted" }, `and ${count(parts.length - MOST_PARTS, "other lineage")}: open a run for its own`) : "");
  }

  merge(event) {
    const links = (row) => JSON.stringify(row?.lineage || {});
    for (const row of event.rows || []) {
      const old = this.byId.get(row.id);
      if (links(old) !== links(row) || old?.state !== row.state) this.moved = true;
      if (old) this.doc.rows[this.places.get(row.id)] = row;
      else {
        this.places.set(row.id, this.doc.rows.length);
        this.doc.rows.push(row);
      }
      this.byId.set(row.id, row);
      this.comparison.changed(row.id);
    }
    if (event.removed?.length) {
      const removed = new Set(event.removed);
      this.doc.rows = this.doc.rows.filter((row) => !removed.has(row.id));
      for (const id of removed) this.chosen.delete(id);
      this.byId = new Map(this.doc.rows.map((row) => [row.id, row]));
      this.oldPlaces = null;
      this.moved = true;
    }
    this.doc.left_out = event.left_out || 0;
    this.doc.unread = event.unread || 0;
    if (!this.soon) this.soon = setTimeout(() => this.settle(), SETTLE_MS);
  }

  get places() {
    if (!this.oldPlaces) this.oldPlaces = new Map(this.doc.rows.map((row, at) => [row.id, at]));
    return this.oldPlaces;
  }

  // Draws what has changed since the last time, once for many events.
  settle() {
    this.soon = 0;
    this.drawHeader();
    this.drawChosen();
    this.table.refresh();
    if (this.moved) {
      this.moved = false;
      this.lineage = new Lineage(this.doc.rows);
      this.drawLineage();
    }
    this.pane.refresh();
  }
}

function beginRuns(doc) {
  const page = new RunsPage(doc);
  page.draw();
  if (page.live) page.live.start();
  redrawWithWindow(() => page.comparison.redraw());
}
