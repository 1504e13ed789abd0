// Runs that a reader has chosen, beside each other: what they are made of, their curves, and their parameters.

const AGAIN_MS = 5000;
const MOST_DIFF_LINES = 400;
const CONTEXT = 3;

class ComparedRuns {
  constructor(ctx) {
    this.ctx = ctx;
    this.element = h("main", { hidden: true });
    this.ids = [];
    this.details = new Map(Object.entries(ctx.doc.details || {}));
    this.sources = new Map(Object.entries(ctx.doc.sources || {}));
    this.problems = new Map();
    this.over = "step";
  }

  async show(ids) {
    this.ids = ids;
    this.element.hidden = false;
    scrollTo(0, 0);
    await this.fetch();
  }

  hide() {
    this.ids = [];
    this.element.hidden = true;
    this.element.replaceChildren();
    delete this.element.dataset.ready;
  }

  async fetch() {
    const ids = this.ids;
    if (this.ctx.live) {
      if (!this.element.children.length) this.element.replaceChildren(h("p", { class: "note" }, `reading ${count(ids.length, "run")} …`));
      try {
        const answer = await fetch(`details?${ids.map((id) => `run=${encodeURIComponent(id)}`).join("&")}`);
        if (!answer.ok) throw new Error((await answer.text()) || `status ${answer.status}`);
        const found = await answer.json();
        for (const [id, detail] of Object.entries(found.details)) this.details.set(id, detail);
        for (const [digest, text] of Object.entries(found.sources)) this.sources.set(digest, text);
        this.problems = new Map(Object.entries(found.problems));
      } catch (error) {
        this.problems = new Map(ids.map((id) => [id, error.message]));
      }
    } else {
      this.problems = new Map(ids.filter((id) => !this.details.has(id)).map((id) => [id, this.ctx.row(id) ? "this file has curves and facts of the newest runs alone, and not of this one: see sparktrain page" : "there is no such run"]));
    }
    if (ids === this.ids) this.draw();
  }

  // A run has another row: while it is compared, its curves have grown.
  changed(id) {
    if (!this.ids.includes(id) || this.soon) return;
    this.soon = setTimeout(() => { this.soon = 0; if (this.ids.length) this.fetch(); }, AGAIN_MS);
  }

  redraw() {
    if (this.ids.length) this.draw();
  }

  draw() {
    const ids = this.ids.filter((id) => this.details.has(id));
    const details = ids.map((id) => this.details.get(id));
    const runs = details.map((detail, at) => ({ letter: String.fromCharCode(65 + at), headline: detail.headline, slot_s: null }));
    const one = details.length === 1;
    const named = (at) => keyOf(runColour(at), short(`${runs[at].letter} · ${runs[at].headline.run.name}`, 60));
    const top = [
      h("header", { class: "head" }, h("div", { class: "title" }, h("h1", {}, one ? details[0].headline.run.name : `${details.length} runs compared`), h("a", { class: "button", href: "#" }, "← All runs"))),
      ...[...this.problems].map(([id, problem]) => h("p", { class: "warn", role: "alert" }, `${id}: ${problem}`)),
      ...runs.flatMap((run) => run.headline.problems.map((line) => h("p", { class: "warn", role: "alert" }, `${run.letter}: ${line}`))),
    ];
    const scroll = scrollY;
    this.element.replaceChildren(...top);
    if (details.length) this.drawCards(details, runs, named);
    scrollTo(0, scroll);
    this.element.dataset.ready = "yes";
  }

  drawCards(details, runs, named) {
    const add = (id, title, draw) => {
      const body = h("div", { class: "card-body" });
      const card = h("section", { class: "card", id: `compared-${id}` }, h("h2", {}, title), body);
      this.element.append(card);
      try {
        const content = draw(body.clientWidth || Math.min(1180, innerWidth - 64));
        if (content) body.append(content);
        else card.remove();
      } catch (error) {
        body.append(h("p", { class: "warn" }, `this part cannot be drawn: ${error.message}`));
        console.error(error);
      }
    };
    const table = (entries) => matrix(runs, entries, named);
    add("runs", "Runs", () => runsTable(runs, named));
    add("curves", "Curves of the best trials, and the best so far", (width) => this.curves(details, width, named));
    add("parallel", "Parameters and results", (width) => comparedParallel(this.ctx, details, runs, width, named));
    add("params", "Parameters of the best trials", () => { const entries = besides(details.map((detail) => detail.best_params || {})); return entries.length ? table(entries) : null; });
    const facts = besides(details.map((detail) => detail.facts));
    if (details.length > 1) add("differences", "What differs", () => factGroups(facts.filter((entry) => new Set(entry.values.map(asText)).size > 1), table) || h("p", { class: "muted" }, "The runs have the same code, data, options and environment."));
    else add("facts", "Code, data, options and environment", () => factGroups(facts, table));
    add("code", "How the code differs", () => this.code(details, runs));
  }

  curves(details, width, named) {
    const holder = h("div", {});
    const choice = h("select", { "aria-label": "Over" }, ["step", "time"].map((word) => h("option", { value: word, selected: word === this.over }, `over ${word}s`.replace("times", "time"))));
    const draw = () => {
      this.over = choice.value;
      const groups = new Map();
      details.forEach((detail, at) => { for (const [metric, line] of Object.entries(detail.curves || {})) groups.set(metric, [...(groups.get(metric) || []), [at, line]]); });
      const first = details[0].headline.run.metric;
      const history = details.map((detail, at) => [at, detail.history]).filter(([at, line]) => line && details[at].headline.run.metric === first);
      const plots = [...groups].map(([metric, lines]) => [short(metric, 80), lines, "step"]);
      if (history.length) plots.push([`best ${short(first || "", 60)} so far`, history, "trials ended"]);
      const wide = plots.length > 1 && width > 900 ? Math.floor((width - 24) / 2) : width;
      holder.replaceChildren(h("div", { class: "multiples" }, plots.map(([title, lines, x]) => h("div", {}, h("h3", {}, title), comparedLines(lines, x, this.over === "time", wide, named)))));
    };
    choice.addEventListener("change", draw);
    draw();
    return holder.firstChild.children.length ? h("div", {}, h("div", { class: "tools" }, choice), holder, otherMetrics(details, named)) : h("p", { class: "muted" }, "No trial has reported anything.");
  }

  code(details, runs) {
    const text = (detail) => this.sources.get(detail.source) || "";
    const parts = details.slice(1).map((detail, at) => [runs[at + 1].letter, detail.source === details[0].source ? [] : diffLines(text(details[0]), text(detail))]).filter(([, lines]) => lines.length);
    return parts.length ? h("div", {}, parts.map(([letter, lines]) => [h("h3", {}, `A and ${letter}`), h("pre", { tabindex: "0", class: "diff" }, lines.map((line) => h("span", { class: line[0] === "+" ? "added" : line[0] === "-" ? "deleted" : "" }, `${line}\n`)))])) : null;
  }
}

function runColour(at) {
  return RUN_COLOURS[at % RUN_COLOURS.length];
}

// Each name, with its value in each run.
function besides(columns) {
  const names = new Set(columns.flatMap((column) => Object.keys(column)));
  return [...names].map((name) => ({ name, values: columns.map((column) => column[name]) }));
}

const FACT_GROUPS = { function: "Code", code: "Code", data: "Data", space: "Space", options: "Options", versions: "Environment" };

// A table for each kind of facts; null without any.
function factGroups(entries, table) {
  const groups = new Map();
  for (const entry of entries) {
    const at = entry.name.indexOf(": ");
    const subject = at < 0 ? entry.name : entry.name.slice(0, at);
    const title = FACT_GROUPS[subject] || subject;
    const name = at < 0 || subject === "data" ? entry.name : entry.name.slice(at + 2);
    groups.set(title, [...(groups.get(title) || []), { name, values: entry.values }]);
  }
  const order = [...new Set(Object.values(FACT_GROUPS))];
  const titles = [...groups.keys()].sort((a, b) => order.indexOf(a) - order.indexOf(b));
  return titles.length ? h("div", {}, titles.map((title) => [h("h3", {}, title), table(groups.get(title))])) : null;
}

// The runs that are not compared with the first one by the values of its metric.
function otherMetrics(details, named) {
  const first = details[0].headline.run.metric;
  const others = details.map((detail, at) => [detail.headline.run.metric, at]).filter(([metric]) => metric !== first);
  return others.length > 0 && h("div", { class: "legend" }, others.map(([metric, at]) => [named(at), h("span", {}, metric ? `has the metric ${short(metric, 40)}, and is left out where results are compared` : "has no metric, and is left out where results are compared")]));
}

function mergedAxis(axes) {
  const all = axes.filter(Boolean);
  if (!all.length) return null;
  return {
    low: Math.min(...all.map((axis) => axis.low)), high: Math.max(...all.map((axis) => axis.high)), log: all.every((axis) => axis.log), integer: all.every((axis) => axis.integer),
    below: all.reduce((sum, axis) => sum + (axis.below || 0), 0), above: all.reduce((sum, axis) => sum + (axis.above || 0), 0),
  };
}

// `lines` are pairs of a run and its line. A chart needs each place once, in order: the last value there counts.
function comparedLines(lines, x, time, width, named) {
  const drawn = lines.map(([run, line]) => {
    const points = new Map();
    (time ? line.seconds : line.at).forEach((place, at) => { if (place !== null) points.set(place, line.values[at]); });
    const places = [...points.keys()].sort((a, b) => a - b);
    return { run, x: places, y: places.map((place) => points.get(place)) };
  });
  return overlay(drawn, mergedAxis(lines.map(([, line]) => line.y)), time ? "time" : x, width, runColour, named, { time, stepped: x !== "step" });
}

// The trials of all runs that are compared by the same metric, each run in its colour.
function comparedParallel(page, details, runs, width, named) {
  const { metric, mode } = details[0].headline.run;
  const rows = [];
  details.forEach((detail, at) => {
    if (detail.headline.run.metric !== metric) return;
    for (const strand of detail.strands || []) rows.push({ id: rows.length, run: at, status: "succeeded", value: strand.value, params: strand.params, place: strand.best ? 0 : 1, title: `${runs[at].letter} · ${runs[at].headline.run.name} · trial ${strand.trial}` });
  });
  const axes = parallelAxes(details, rows);
  if (rows.length < 2 || !axes.length) return null;
  const order = rows.map((row) => row.id).sort((a, b) => rows[b].place - rows[a].place);
  const used = [...new Set(rows.map((row) => row.run))];
  const ctx = {
    doc: { headline: { run: { metric, mode } } }, row: (id) => rows[id], open: () => {}, colour: (row) => css(runColour(row.run)),
    legend: h("div", { class: "legend" }, used.map(named), h("span", {}, "thick lines are the best trials")),
  };
  return parallelPlot(ctx, { axes, trials: order, y: mergedAxis(details.filter((detail) => detail.headline.run.metric === metric).map((detail) => detail.strands_y)) }, width);
}

function parallelAxes(details, rows) {
  const names = new Set(rows.flatMap((row) => Object.keys(row.params)));
  return [...names].map((name) => {
    const values = rows.map((row) => row.params[name]).filter((value) => value !== undefined && value !== null);
    const declared = details.flatMap((detail) => (detail.axes || []).filter((axis) => axis.name === name));
    if (values.every((value) => typeof value === "number")) {
      const [low, high] = [Math.min(...values), Math.max(...values)];
      const log = low > 0 && (declared.length ? declared.some((axis) => axis.log) : high / low >= 100);
      return low < high ? { name, kind: "number", low, high, log, integer: values.every(Number.isInteger) } : null;
    }
    const texts = [...new Set(values.map((value) => short200(asText(value))))].sort();
    return texts.length > 1 && texts.length <= 40 ? { name, kind: "category", values: texts } : null;
  }).filter(Boolean).slice(0, 40);
}

// The lines of two texts that differ, with some around them.
function diffLines(one, other) {
  const [a, b] = [one.split("\n"), other.split("\n")];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const [left, right] = [a.slice(head, a.length - tail), b.slice(head, b.length - tail)];
  const lines = [...a.slice(Math.max(0, head - CONTEXT), head).map((line) => `  ${line}`), ...changes(left, right), ...a.slice(a.length - tail, a.length - tail + CONTEXT).map((line) => `  ${line}`)];
  if (!left.length && !right.length) return [];
  return lines.length > MOST_DIFF_LINES ? [...lines.slice(0, MOST_DIFF_LINES), `… and ${lines.length - MOST_DIFF_LINES} more lines`] : lines;
}

// By the longest common subsequence; of very long texts all lines.
function changes(left, right) {
  if (left.length * right.length > 4e6) return [...left.map((line) => `- ${line}`), ...right.map((line) => `+ ${line}`)];
  const wide = right.length + 1;
  const most = new Uint16Array((left.length + 1) * wide);
  for (let i = left.length - 1; i >= 0; i--) for (let j = right.length - 1; j >= 0; j--) most[i * wide + j] = left[i] === right[j] ? most[(i + 1) * wide + j + 1] + 1 : Math.max(most[(i + 1) * wide + j], most[i * wide + j + 1]);
  const lines = [];
  let [i, j] = [0, 0];
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && left[i] === right[j]) {
      lines.push(`  ${left[i]}`);
      i++;
      j++;
    } else if (j >= right.length || (i < left.length && most[(i + 1) * wide + j] >= most[i * wide + j + 1])) lines.push(`- ${left[i++]}`);
    else lines.push(`+ ${right[j++]}`);
  }
  return lines;
}
