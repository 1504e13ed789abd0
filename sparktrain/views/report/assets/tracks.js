// Learning curves, and the timeline of trials over slots.

function curvesPlot(ctx, curves, width, logarithm) {
  const box = h("div", { class: "plot" });
  const many = curves.lines.length;
  const usable = (value) => (value === null || (logarithm && value <= 0) ? null : value);
  const values = curves.lines.map((line) => line.values.map(usable));
  const band = curves.band ? [curves.band.q10, curves.band.q90, curves.band.q25, curves.band.q75, curves.band.q50].map((part) => part.map(usable)) : [];
  const best = ctx.doc.headline.best ? ctx.doc.headline.best.trial : null;
  const strokes = curves.lines.map((line) => strokeOf(ctx, line.trial, best));
  const series = [
    {},
    ...band.map((_, at) => ({ stroke: at === 4 ? css("--muted") : "transparent", width: at === 4 ? 1.5 : 0, dash: at === 4 ? [5, 4] : null, points: { show: false }, spanGaps: true })),
    ...curves.lines.map((line, at) => ({ stroke: strokes[at], width: line.trial === best ? 3 : 1.4, alpha: line.trial === best ? 1 : many > 60 ? 0.5 : 0.8, spanGaps: true, points: { show: line.values.filter((value) => value !== null).length < 2, size: 5, fill: strokes[at] } })),
  ];
  const bands = curves.band ? [{ series: [2, 1], fill: css("--band") }, { series: [4, 3], fill: css("--band") }] : [];
  const caption = h("span", {}, "");
  const first = 1 + band.length;
  const plot = uplot(width, 320, {
    x: "step", y: curveAxis(curves, values, logarithm), series, bands,
    cursor: { points: { show: false }, focus: { prox: 14 } }, focus: { alpha: 0.25 },
    hooks: { setSeries: [(chart, at) => { focused = at; }] },
  }, [curves.steps, ...band, ...values], box);
  let focused = null;
  plot.over.addEventListener("mousemove", (event) => {
    const line = focused === null ? null : curves.lines[focused - first];
    if (!line) return hideTip();
    const row = ctx.row(line.trial);
    const at = plot.cursor.idx;
    if (row) showTip(event, trialTip(ctx, row, [`step ${curves.steps[at]}: ${number(line.values[at])}`]));
  });
  plot.over.addEventListener("mouseleave", hideTip);
  plot.over.addEventListener("click", () => { const line = curves.lines[focused - first]; if (line) ctx.open(line.trial); });
  caption.textContent = curves.band ? `the best ${many} of ${count(curves.total, "trial")}; bands hold the middle 50 % and 80 % of all, the dashed line is the median` : count(curves.total, "trial");
  const statuses = curves.lines.map((line) => ctx.row(line.trial)).filter((row) => row && row.id !== best);
  const key = h("div", { class: "legend" }, best !== null && keyOf("--best", "best", true), statusKeys(statuses, {}));
  const last = (line) => line.values.reduce((newest, value) => (value === null ? newest : value), null);
  const note = logarithm ? "" : beyondNote(curves.y, curves.lines.map((line) => [last(line), line.trial]).filter(([value]) => value !== null));
  return h("div", {}, box, h("div", { class: "foot" }, key, caption), note && h("div", { class: "foot" }, h("span", {}, `last values ${note}`)));
}

// The axis of the document, or a logarithmic one over all positive values.
function curveAxis(curves, values, logarithm) {
  if (!logarithm || curves.y.log) return curves.y;
  const positive = values.flat().filter((value) => value !== null);
  if (!positive.length) return curves.y;
  return { low: positive.reduce((a, b) => Math.min(a, b)), high: positive.reduce((a, b) => Math.max(a, b)), log: true };
}

function strokeOf(ctx, trial, best) {
  const row = ctx.row(trial);
  return trial === best ? css("--best") : statusColour(row ? row.status : "succeeded");
}

function timelinePlot(ctx, view, width) {
  const lanes = view.lanes.length;
  const step = lanes > 150 ? 5 : lanes > 60 ? 9 : lanes > 24 ? 14 : 20;
  const names = new Map();
  view.lanes.forEach((lane, at) => { if (!names.has(lane.host)) names.set(lane.host, at); });
  const [left, top] = [Math.min(150, 0.3 * width), 8];
  const bottom = top + lanes * step;
  const svg = svgOf(width, bottom + 26, `timeline of ${lanes} slots`);
  const x = linear(0, view.seconds || 1, left, width - 10);
  const marks = timeTicks(view.seconds, Math.max(2, Math.floor((width - left) / 110))).map((at) => [x(at), at < 60 ? `${at} s` : duration(at)]);
  svg.append(...bottomAxis(marks, bottom, bottom - top).flat().filter(Boolean));
  let free = -Infinity;
  for (const [host, at] of names) {
    const y = top + at * step;
    svg.append(s("line", { class: "grid", x1: 0, x2: width - 10, y1: y, y2: y }));
    if (y - free < 11) continue;
    free = y;
    svg.append(s("text", { class: "tick", x: 0, y: y + 11 }, short(host, Math.floor(left / 6.6)), s("title", {}, host)));
  }
  const paths = view.kinds.map(() => []);
  const restarts = [];
  for (const [lane, , generation, start, end, kind] of view.bars) {
    const [from, to, y] = [x(start), x(end), top + (lane + 0.5) * step];
    paths[kind].push(`M${from.toFixed(1)} ${y}H${Math.max(from + 0.8, to - 0.6).toFixed(1)}`);
    if (generation > 1) restarts.push([from, y]);
  }
  view.kinds.forEach((kind, at) => { if (paths[at].length) svg.append(s("path", { class: "bars-path", d: paths[at].join(""), stroke: `var(--${kind})`, "stroke-width": step - (step > 8 ? 4 : 1) })); });
  if (restarts.length) svg.append(s("path", { class: "restart-marks", d: restarts.map(([px, y]) => `M${px.toFixed(1)} ${y - step / 2 + 1}v${step - 2}`).join("") }));
  for (const at of (view.drivers || []).slice(1)) svg.append(s("line", { class: "driver", x1: x(at), x2: x(at), y1: top, y2: bottom }, s("title", {}, "a driver resumed the run")));
  const hit = (event) => {
    const [px, py] = pointer(svg, event);
    const lane = Math.floor((py - top) / step);
    return view.bars.find((bar) => bar[0] === lane && x(bar[3]) - 1 <= px && px <= Math.max(x(bar[4]), x(bar[3]) + 2));
  };
  svg.addEventListener("mousemove", (event) => {
    const bar = hit(event);
    if (!bar) return hideTip();
    const lane = view.lanes[bar[0]];
    showTip(event, [`trial ${bar[1]}, generation ${bar[2]}: ${view.kinds[bar[5]]}`, `${lane.host}, slot ${lane.slot + 1}`, `from ${duration(bar[3])} to ${duration(bar[4])} (${duration(bar[4] - bar[3])})`]);
  });
  svg.addEventListener("mouseleave", hideTip);
  svg.addEventListener("click", (event) => { const bar = hit(event); if (bar) ctx.open(bar[1]); });
  const used = view.kinds.filter((_, at) => paths[at].length).map((kind) => keyOf(`--${kind}`, kind));
  const busy = view.lanes.reduce((sum, lane) => sum + lane.busy_s, 0) / (lanes * (view.driver_s || 1));
  const notes = [`${count(lanes, "slot")} on ${count(names.size, "host")}, busy ${percent(Math.min(1, busy))} of the time`, restarts.length ? "a dark edge starts a further generation" : "", view.left_out ? `${count(view.left_out, "later gang")} not drawn` : ""];
  return h("div", {}, h("div", { class: lanes > 40 ? "scroll tall-box" : "scroll" }, svg), h("div", { class: "foot" }, h("div", { class: "legend" }, used), h("span", {}, notes.filter(Boolean).join(" · "))));
}

function timeTicks(seconds, wanted) {
  const steps = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800];
  const step = steps.find((each) => seconds / each <= wanted) || Math.ceil(seconds / wanted / 604800) * 604800;
  const found = [];
  for (let at = 0; at <= seconds; at += step) found.push(at);
  return found;
}
