// The sections of a run's page, in their order. Each has an id, a title, the views it shows, and a function that draws it.

function headerOf(ctx) {
  const { headline, sparktrain, made, live } = ctx.doc;
  const word = headline.state === "ended" ? headline.status || "ended" : headline.state === "gone" ? "driver gone" : "running";
  const total = Object.values(headline.counts).reduce((sum, each) => sum + each, 0);
  const whole = Math.max(total, headline.total || 0) || 1;
  const bar = h("div", { class: "stack", role: "img", "aria-label": "Trials by status" });
  for (const status of STATUSES) {
    const many = headline.counts[status];
    if (!many) continue;
    const part = h("span", { title: `${many} ${status}` });
    part.style.width = `${(100 * many) / whole}%`;
    part.style.background = `var(--${status})`;
    bar.append(part);
  }
  const named = STATUSES.filter((status) => headline.counts[status]).map((status) => keyOf(`--${status}`, `${headline.counts[status].toLocaleString("en")} ${status}`));
  const open = (headline.total || 0) - total;
  if (open > 0) named.push(keyOf("--grid", `${open.toLocaleString("en")} to come`));
  return h("header", { class: "head" },
    h("div", { class: "title" }, h("h1", {}, headline.run.name), chip(word === "driver gone" ? "lost" : word, word), addButton(ctx), live && live.rights.includes("stop") && headline.state === "running" && h("button", { type: "button", class: "danger", onclick: () => ctx.live.stop(null) }, "Stop the run")),
    h("p", { class: "muted meta" }, h("span", {}, headline.run.function), headline.run.metric && h("span", {}, `${headline.run.metric}, ${headline.run.mode === "min" ? "lower" : "higher"} is better`), h("span", {}, `started ${moment(headline.course.started)}`), h("span", {}, headline.run.directory)),
    headline.reason && h("p", { class: "warn" }, headline.reason),
    headline.problems.map((line) => h("p", { class: "warn", role: "alert" }, line)),
    headline.notes.map((line) => h("p", { class: "note" }, line)),
    tiles(ctx), total > 0 && bar, h("div", { class: "legend" }, named),
    h("p", { class: "made" }, live ? h("span", { id: "link" }, "live") : `made ${moment(made)} by sparktrain ${sparktrain}`));
}

function tiles(ctx) {
  const { headline, views } = ctx.doc;
  const total = Object.values(headline.counts).reduce((sum, each) => sum + each, 0);
  const tile = (name, value, small) => h("div", { class: "tile" }, h("div", { class: "tile-name", title: name }, short(name, 40)), h("div", { class: "tile-value" }, value), h("div", { class: "tile-small" }, small || ""));
  const best = headline.best;
  const final = Object.entries(headline.counts).filter(([status]) => !["queued", "running", "paused"].includes(status)).reduce((sum, [, many]) => sum + many, 0);
  return h("div", { class: "tiles" },
    best && headline.run.metric && tile(`best ${headline.run.metric}`, number(best.value), `trial ${best.trial}`),
    tile("trials", final.toLocaleString("en"), headline.total && headline.total !== final ? `of ${headline.total.toLocaleString("en")}` : total > final ? `${total - final} open` : "all have ended"),
    tile("duration", duration(headline.course.seconds), headline.course.drivers > 1 ? `under ${headline.course.drivers} drivers, ${duration(headline.course.wall_s)} in all` : ""),
    views.cost && tile("slot-hours", hours(views.cost.slot_s), `on ${count(views.cost.slots, "slot")}`),
    views.cost && tile("lost to failures", percent(views.cost.lost_share), headline.course.restarts ? count(headline.course.restarts, "restart") : "of the slot-hours"),
    views.cost && views.cost.pruned_share > 0 && tile("on pruned trials", percent(views.cost.pruned_share), "of the slot-hours"));
}

const SECTIONS = [
  { id: "best", title: "Best trial", needs: ["headline"], draw: drawBest },
  { id: "trials", title: "Trials", needs: ["trials"], skip: (doc) => !doc.trials.length, draw: (ctx) => (ctx.table = trialTable(ctx)).element, keep: (ctx) => ctx.table && ctx.table.refresh() },
  { id: "failures", title: "Failures", needs: ["failures"], skip: (doc) => !doc.views.failures.trials, draw: drawFailures },
  { id: "history", title: "History", needs: ["history"], skip: (doc) => !doc.views.history, draw: (ctx, width) => historyPlot(ctx, ctx.doc.views.history, width) },
  { id: "curves", title: "Learning curves", needs: ["curves"], skip: (doc) => !doc.views.curves.length, draw: (ctx, width) => drawCurves(ctx, ctx.doc.views.curves, width) },
  { id: "front", title: "Trade-off between metrics", needs: ["front"], skip: (doc) => !doc.views.front || doc.views.front.metrics.length < 2, draw: drawFront },
  { id: "importance", title: "Importance of parameters", needs: ["importance"], skip: (doc) => doc.headline.run.kind === "run" || !doc.views.parallel.trials.length, draw: drawImportance },
  { id: "parallel", title: "Parallel coordinates", needs: ["parallel"], skip: (doc) => !doc.views.parallel.axes.length || !doc.views.parallel.trials.length, draw: (ctx, width) => parallelPlot(ctx, ctx.doc.views.parallel, width) },
  { id: "slices", title: "Slices and contours", needs: ["slices"], skip: (doc) => !doc.views.slices.axes?.length || !doc.views.slices.trials?.length, draw: drawSlices },
  { id: "timeline", title: "Timeline", needs: ["timeline"], skip: (doc) => !doc.views.timeline, draw: (ctx, width) => timelinePlot(ctx, ctx.doc.views.timeline, width) },
  { id: "cost", title: "Cost", needs: ["cost"], skip: (doc) => !doc.views.cost, draw: drawCost },
  { id: "environment", title: "Environment", needs: ["environment"], draw: drawEnvironment },
];

function drawBest(ctx) {
  const { best, no_best: why, run: { metric } } = ctx.doc.headline;
  if (!best) return h("p", { class: "muted" }, why || "there is no best trial");
  const others = Object.entries(best.metrics).filter(([name]) => name !== metric);
  return h("div", {},
    h("div", { class: "best" },
      h("div", {}, h("p", { class: "big" }, metric ? number(best.value) : `trial ${best.trial}`, metric && h("small", {}, ` ${short(metric, 60)}`)), h("button", { type: "button", onclick: () => ctx.open(best.trial) }, `Open trial ${best.trial}`)),
      Object.keys(best.params).length > 0 && h("div", {}, h("h3", {}, "Parameters"), pairs(Object.entries(best.params))),
      others.length > 0 && h("div", {}, h("h3", {}, metric ? "Other metrics" : "Metrics"), pairs(others))),
    best.command && [h("h3", {}, "Train it again"), command(best.command)],
    (best.checkpoint || best.log) && pairs([["checkpoint", best.checkpoint], ["log", best.log]].filter(([, value]) => value), "pairs wide"));
}

function drawFailures(ctx) {
  const view = ctx.doc.views.failures;
  const groups = view.kinds.map((kind, place) => h("details", { open: place === 0 },
    h("summary", {}, chip("failed", `${kind.count}×`), h("b", {}, kind.kind), h("span", {}, short(kind.summary, 300))),
    h("div", { class: "failure" },
      h("p", { class: "muted" }, `trial ${kind.first}`, kind.rank === undefined ? "" : `, rank ${kind.rank}`, kind.host ? ` on ${kind.host}` : "", kind.loss ? ` · ${kind.loss}` : "", kind.log ? ` · ${kind.log}` : ""),
      texts(kind),
      h("p", { class: "links" }, kind.count > 1 ? "Trials " : "", kind.trials.slice(0, 40).map((id) => h("button", { type: "button", class: "link", onclick: () => ctx.open(id) }, id)), kind.count > 40 ? ` and ${kind.count - 40} more` : ""))));
  return h("div", { class: "groups" }, groups, view.left_out ? h("p", { class: "muted" }, `and ${view.left_out} other kinds of failures`) : null);
}

function drawCurves(ctx, all, width) {
  const holder = h("div", {});
  const logarithm = h("input", { type: "checkbox", onchange: draw });
  const select = h("select", { "aria-label": "Metric", onchange: draw }, all.map((curves, place) => h("option", { value: place }, short(curves.metric, 80))));
  function draw() {
    holder.replaceChildren(curvesPlot(ctx, all[Number(select.value)], width, logarithm.checked));
  }
  draw();
  return h("div", {}, h("div", { class: "tools" }, all.length > 1 ? select : h("b", {}, short(all[0].metric, 80)), h("label", {}, logarithm, " log scale")), holder);
}

function drawFront(ctx, width) {
  const view = ctx.doc.views.front;
  const names = view.trials.slice(0, 60).map((id) => h("button", { type: "button", class: "link", onclick: () => ctx.open(id) }, id));
  return h("div", {}, frontPlot(ctx, view, ctx.doc.trials, width), h("p", { class: "links" }, "On the front: trials ", names), view.constraints.length ? h("p", { class: "muted" }, `Constraints: ${view.constraints.join(", ")}`) : null);
}

function drawImportance(ctx, width) {
  const view = ctx.doc.views.importance;
  if (!view.shares) return h("p", { class: "muted" }, view.reason);
  const stopped = view.stopped ? `, ${view.stopped.toLocaleString("en")} of them stopped early or without a finite metric` : "";
  const unsure = view.sure === false ? "The intervals of the first parameters overlap: with more trials their order may change. " : "";
  return h("div", {}, importanceBars(view, width), h("p", { class: "muted" }, `${unsure}PED-ANOVA over the order of ${count(view.trials, "trial")}${stopped}: how far the values of each parameter decide whether a trial is among the best. The line is the interval in which nine of ten samples of these trials lie.`));
}

function drawSlices(ctx, width) {
  const view = ctx.doc.views.slices;
  const rows = view.trials.map((id) => ctx.row(id)).filter((row) => row && typeof row.value === "number");
  const columns = Math.max(1, Math.floor(width / 300));
  const wide = Math.floor((width - 18 * (columns - 1)) / columns);
  const slices = view.axes.map((axis) => slicePlot(ctx, axis, rows, view, wide));
  const sampled = rows.length >= 1500 ? "an even sample of 1,500 trials" : "";
  const notes = [sampled, beyondNote(view.y, rows.map((row) => [row.value, row.id]))].filter(Boolean).join(" · ");
  return h("div", {},
    h("div", { class: "multiples" }, slices),
    h("div", { class: "foot" }, h("div", { class: "legend" }, statusKeys(rows, { succeeded: "result", ...STOPPED_EARLY })), h("span", {}, notes)),
    contoursPart(ctx, view, rows, wide));
}

function contoursPart(ctx, view, rows, wide) {
  if (view.no_contours) return h("p", { class: "muted" }, view.no_contours);
  if (!view.contours) return null;
  const contours = view.contours.map((contour) => contourPlot(ctx, contour, view, rows, wide));
  return h("div", {}, h("h3", {}, "Places of trials over two parameters"), h("div", { class: "multiples" }, contours), h("div", { class: "foot" }, rampLegend("worst trials", "best trials")));
}

function drawCost(ctx) {
  const view = ctx.doc.views.cost;
  const bar = h("div", { class: "stack tall", role: "img", "aria-label": "Slot-hours by outcome" });
  const rows = view.shares.map((each) => {
    const part = h("span", { title: `${each.kind}: ${percent(each.share)}` });
    part.style.width = `${100 * each.share}%`;
    part.style.background = `var(--${each.kind})`;
    bar.append(part);
    return h("tr", {}, h("td", {}, keyOf(`--${each.kind}`, each.kind)), h("td", { class: "right" }, hours(each.slot_s)), h("td", { class: "right" }, percent(each.share)));
  });
  return h("div", {}, bar, h("div", { class: "scroll" }, h("table", { class: "small" }, h("thead", {}, h("tr", {}, h("th", {}, "outcome"), h("th", { class: "right" }, "slot-hours"), h("th", { class: "right" }, "share"))), h("tbody", {}, rows))),
    h("p", { class: "muted" }, `${hours(view.slot_s)} slot-hours were used of ${hours(view.available_s)} on ${count(view.slots, "slot")}; ${percent(view.lost_share)} of those used went to gangs that failed or were lost, ${percent(view.pruned_share)} to trials that were pruned.`));
}

function drawEnvironment(ctx) {
  const view = ctx.doc.views.environment;
  const groups = Object.entries(view.facts).map(([name, facts]) => h("div", {}, h("h3", {}, name), pairs(facts.map((fact) => [fact.name, fact.value]))));
  return h("div", {},
    h("div", { class: "facts" }, groups),
    view.data && [h("h3", {}, "Datasets"), h("div", { class: "scroll" }, datasetTable(view.data))],
    view.source ? h("details", {}, h("summary", {}, "Source of the training function"), h("pre", { tabindex: "0" }, view.source)) : null);
}

// A row for each dataset: its columns stand together by their types.
function datasetTable(data) {
  const rows = data.map((dataset) => {
    const groups = (dataset.columns || []).map((group) => h("div", {}, h("b", {}, group.type), ` ${group.names.join(", ")}`));
    const many = (dataset.columns || []).reduce((sum, group) => sum + group.names.length, 0);
    const facts = Object.entries(dataset.facts || {}).map(([name, value]) => h("div", { class: "muted" }, `${name} ${value}`));
    return h("tr", {}, h("th", {}, dataset.name), h("td", {}, dataset.kind, facts), h("td", { class: "right" }, dataset.rows === undefined ? "–" : dataset.rows.toLocaleString("en")), h("td", { class: "right" }, many), h("td", { class: "wide" }, groups));
  });
  const head = ["dataset", "kind", "rows", "columns", "columns by type"];
  return h("table", { class: "small full" }, h("thead", {}, h("tr", {}, head.map((name, place) => h("th", { class: place === 2 || place === 3 ? "right" : "" }, name)))), h("tbody", {}, rows));
}
