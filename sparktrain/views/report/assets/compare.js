// Several runs beside each other.

const RUN_COLOURS = Array.from({ length: 8 }, (_, place) => `--series-${place}`);

function comparisonPage(doc) {
  const ctx = { doc };
  const runs = doc.runs;
  const colour = (at) => RUN_COLOURS[at % RUN_COLOURS.length];
  const named = (at) => keyOf(colour(at), short(`${runs[at].letter} · ${runs[at].headline.run.name}`, 60));
  const page = h("main", {},
    h("header", { class: "head" }, h("div", { class: "title" }, h("h1", {}, `${runs.length} runs compared`)), h("p", { class: "made" }, `made ${moment(doc.made)} by sparktrain ${doc.sparktrain}`)),
    runs.flatMap((run) => run.headline.problems.map((line) => h("p", { class: "warn", role: "alert" }, `${run.letter}: ${line}`))));
  const add = (id, title, draw) => {
    const body = h("div", { class: "card-body" });
    page.append(h("section", { class: "card", id }, h("h2", {}, title), body));
    body.append(draw(body.clientWidth || Math.min(1180, innerWidth - 64)));
  };
  document.getElementById("app").replaceChildren(page, tip);
  add("runs", "Runs", () => runsTable(runs, named));
  if (doc.differences.length) add("differences", "What differs", () => differencesTable(doc, runs, named));
  else add("differences", "What differs", () => h("p", { class: "muted" }, "The plans of the runs are the same but for their names."));
  if (doc.best_params.length) add("params", "Parameters of the best trials", () => matrix(runs, doc.best_params, named));
  if (doc.history.length) add("history", "Best so far", (width) => overlay(doc.history, doc.history_y, "trials ended", width, colour, named));
  for (const curves of doc.curves) add(`curves-${curves.metric}`, `${short(curves.metric, 80)} of the best trials`, (width) => overlay(curves.lines, curves.y, "step", width, colour, named));
  for (const part of doc.code) add("code", `Code of ${part.letters}`, () => h("pre", { tabindex: "0" }, part.lines.join("\n")));
}

function runsTable(runs, named) {
  const costs = runs.some((run) => run.slot_s !== null);
  const head = ["run", "state", "best", "trials", "failed", "duration", costs && "slot-hours", "started"].filter(Boolean);
  const rows = runs.map((run, at) => {
    const line = run.headline;
    const total = Object.values(line.counts).reduce((sum, each) => sum + each, 0);
    const failed = (line.counts.failed || 0) + (line.counts.lost || 0);
    const state = line.state === "ended" ? line.status : line.state === "gone" ? "driver gone" : line.state;
    const best = line.best && line.run.metric ? `${number(line.best.value)} ${short(line.run.metric, 30)} (trial ${line.best.trial})` : "–";
    const cells = [named(at), chip(line.state === "gone" ? "lost" : state, state), best, total, failed, duration(line.course.seconds), costs && (run.slot_s === null ? "–" : hours(run.slot_s)), moment(line.course.started)].filter((cell) => cell !== false);
    return h("tr", { title: line.run.directory }, cells.map((cell, place) => h("td", { class: place > 2 ? "right" : "" }, cell)));
  });
  return h("div", { class: "scroll" }, h("table", { class: "small full" }, h("thead", {}, h("tr", {}, head.map((name, place) => h("th", { class: place > 2 ? "right" : "" }, name)))), h("tbody", {}, rows)));
}

function differencesTable(doc, runs, named) {
  return matrix(runs, doc.differences, named);
}

function matrix(runs, entries, named) {
  const rows = entries.map((entry) => {
    const different = new Set(entry.values.map((value) => asText(value))).size > 1;
    return h("tr", { class: different ? "" : "same" }, h("th", { title: entry.name }, short(entry.name, 60)), entry.values.map((value) => h("td", { title: asText(value) }, typeof value === "number" ? number(value) : short(asText(value), 60))));
  });
  return h("div", { class: "scroll" }, h("table", { class: "small full" }, h("thead", {}, h("tr", {}, h("th", {}, ""), runs.map((_, at) => h("th", {}, named(at))))), h("tbody", {}, rows)));
}

// Of `options`, `time` is set where x are seconds, and `stepped` where a value stays until the next one.
function overlay(lines, y, x, width, colour, named, options) {
  const { time, stepped } = options || {};
  const paths = stepped ? uPlot.paths.stepped({ align: 1 }) : undefined;
  const box = h("div", { class: "plot" });
  const data = uPlot.join(lines.map((line) => [line.x, line.y]));
  uplot(width, 300, {
    x, y, time, cursor: { points: { show: false } },
    series: [{}, ...lines.map((line) => ({ stroke: css(colour(line.run)), width: 2.5, paths, dash: line.run >= RUN_COLOURS.length ? [7, 4] : null, spanGaps: true, points: { show: line.x.length < 3 } }))],
  }, data, box);
  const cut = (y.below || 0) + (y.above || 0);
  return h("div", {}, box, h("div", { class: "foot" }, h("div", { class: "legend" }, lines.map((line) => named(line.run))), h("span", {}, cut ? `${count(cut, "value")} beyond the axis` : "")));
}
