// Charts of a run. Each function returns an element that is `width` pixels wide.

const TOUCH = 14;
const WHOLE = [1, 2, 5].flatMap((digit) => Array.from({ length: 13 }, (_, power) => digit * 10 ** power)).sort((a, b) => a - b);
const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, ...[1, 2, 5, 10, 20, 50, 100, 200, 500].map((days) => 86400 * days)];
const CROWDED = 2000; // points; of more, only those are drawn that do not cover each other: a path of 100,000 arcs takes 40 MB
const STOPPED_EARLY = { pruned: "pruned: value at its last step" };

function trialTip(ctx, row, extra) {
  const params = Object.entries(row.params || {}).slice(0, 12);
  const metric = ctx.doc.headline.run.metric;
  return [
    row.title || `trial ${row.id} · ${row.status}`,
    row.value === undefined ? null : `${metric} ${number(row.value)}`,
    ...(extra || []),
    ...params.map(([name, value]) => `${short(name, 30)} = ${short(typeof value === "number" ? number(value) : asText(value), 40)}`),
  ].filter((line) => line !== null);
}

// A chart by uPlot over whole numbers, or with `options.time` over seconds. `options.y` is the axis of the metric, as the document has it.
function uplot(width, height, options, data, parent) {
  const { x, y, time, ...others } = options;
  const axis = { stroke: css("--muted"), grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--grid"), width: 1, size: 4 } };
  const font = "11px system-ui, sans-serif";
  const values = (_, splits) => splits.map((split) => (split === null ? "" : number(split)));
  const axes = [
    { ...axis, font, values: time ? (_, splits) => splits.map(duration) : values, incrs: time ? TIMES : WHOLE, label: x, labelSize: 20, labelFont: font, size: 34 },
    { ...axis, font, values, size: 62, ...(y && y.integer && !y.log ? { incrs: WHOLE } : {}) },
  ];
  const scales = { x: { time: false }, y: { ...(y && y.log ? { distr: 3 } : {}), range: () => paddedEnds(y) } };
  return new uPlot({ width, height, legend: { show: false }, axes, scales, padding: [10, 14, 0, 0], ...others }, data, parent);
}

function paddedEnds(axis) {
  const { low, high } = endsOf(axis);
  if (axis && axis.log) return [low * (low / high) ** 0.04, high * (high / low) ** 0.04];
  return [low - (high - low) * 0.05, high + (high - low) * 0.05];
}

// The places of the points of a series that are drawn: one for each cell of the chart that is as large as a point.
function uncovered(size) {
  return (chart, series) => {
    const values = chart.data[series];
    const [first, last] = chart.series[0].idxs;
    const cells = new Map();
    for (let at = first; at <= last; at += 1) {
      if (values[at] === null) continue;
      const [x, y] = [chart.valToPos(chart.data[0][at], "x"), chart.valToPos(values[at], "y")];
      const cell = Math.round(x / size) * 65536 + Math.round(y / size);
      if (!cells.has(cell)) cells.set(cell, at);
    }
    return [...cells.values()];
  };
}

function historyPlot(ctx, view, width) {
  const box = h("div", { class: "plot" });
  const rows = view.trials.map((id) => ctx.row(id) || { id, status: "succeeded" });
  const used = STATUSES.filter((status) => rows.some((row) => row.status === status));
  const inside = view.values.map((value) => (beyond(view.y, value) ? null : value));
  const columns = used.map((status) => inside.map((value, at) => (rows[at].status === status ? value : null)));
  // The line has a point for each change, and one for its end.
  const steps = view.best.map((value, at) => (value === view.best[at - 1] && at + 1 < view.best.length ? null : value));
  const points = view.values.length > CROWDED ? { show: true, size: 3, filter: uncovered(3) } : { show: true, size: 6 };
  const dot = (status) => ({ stroke: css(`--${status}`), width: 0, paths: () => null, points: { ...points, fill: css(`--${status}`), stroke: css(`--${status}`) } });
  const plot = uplot(width, 260, {
    x: "trials ended", y: view.y,
    cursor: { points: { show: false }, drag: { x: true, y: false } },
    hooks: { draw: [(chart) => drawEdges(chart, view, rows)] },
    series: [{}, ...used.map(dot), { stroke: css("--best"), width: 2.5, paths: uPlot.paths.stepped({ align: 1 }), spanGaps: true, points: { show: false } }],
  }, [view.values.map((_, at) => at + 1), ...columns, steps], box);
  plot.over.addEventListener("mousemove", (event) => {
    const at = plot.cursor.idx;
    const row = at === null || at === undefined ? null : ctx.row(view.trials[at]);
    if (row) showTip(event, trialTip(ctx, row, [`best so far ${number(view.best[at])}`]));
  });
  plot.over.addEventListener("mouseleave", hideTip);
  plot.over.addEventListener("click", () => {
    if (plot.cursor.idx !== null && ctx.row(view.trials[plot.cursor.idx])) ctx.open(view.trials[plot.cursor.idx]);
  });
  const key = h("div", { class: "legend" }, keyOf("--best", "best so far", true), statusKeys(rows, { succeeded: "result", ...STOPPED_EARLY }));
  const note = beyondNote(view.y, view.values.map((value, at) => [value, view.trials[at]]));
  return h("div", {}, box, h("div", { class: "foot" }, key, h("span", {}, note)));
}

// Triangles on the canvas for values beyond the axis; see `edgeMarks`.
function drawEdges(chart, view, rows) {
  const { ctx: pen, bbox } = chart;
  const pixel = devicePixelRatio || 1;
  pen.save();
  pen.font = `${11 * pixel}px system-ui, sans-serif`;
  [pen.textAlign, pen.textBaseline] = ["left", "alphabetic"];
  let free = -Infinity;
  const outside = view.values.map((value, at) => [value, at, chart.valToPos(at + 1, "x", true)]).filter(([value, , x]) => beyond(view.y, value) && x >= bbox.left - 1 && x <= bbox.left + bbox.width + 1);
  outside.forEach(([value, at, x], place) => {
    const side = beyond(view.y, value);
    const edge = side > 0 ? bbox.top : bbox.top + bbox.height;
    pen.fillStyle = css(`--${rows[at].status}`);
    pen.beginPath();
    pen.moveTo(x, edge);
    pen.lineTo(x - 5 * pixel, edge + side * 8 * pixel);
    pen.lineTo(x + 5 * pixel, edge + side * 8 * pixel);
    pen.fill();
    const text = number(value);
    const wide = pen.measureText(text).width;
    const next = place + 1 < outside.length ? outside[place + 1][2] - 6 * pixel : bbox.left + bbox.width;
    const left = x + 8 * pixel + wide > next ? x - 8 * pixel - wide : x + 8 * pixel;
    if (left < free) {
      free = Math.max(free, x + 8 * pixel);
      return;
    }
    free = Math.max(left + wide, x) + 8 * pixel;
    pen.fillStyle = css("--text");
    pen.fillText(text, left, edge + (side > 0 ? 10 : -3) * pixel);
  });
  pen.restore();
}

function keyOf(variable, text, line) {
  const mark = h("i", { class: line ? "key line" : "key" });
  mark.style.background = `var(${variable})`;
  return h("span", { class: "keyed" }, mark, text);
}

// A name on up to three lines of `room` characters, broken behind a sign where there is one.
function nameLines(name, room) {
  const lines = [];
  let rest = Array.from(name);
  while (rest.length > room && lines.length < 2) {
    const sign = Math.max(...[".", "_", "-", "/", " "].map((each) => rest.slice(0, room).lastIndexOf(each)));
    const cut = sign > room / 3 ? sign + 1 : room;
    lines.push(rest.slice(0, cut).join(""));
    rest = rest.slice(cut);
  }
  return [...lines, short(rest.join(""), room)];
}

function parallelPlot(ctx, view, width) {
  const { metric, mode } = ctx.doc.headline.run;
  const rows = view.trials.map((id) => ctx.row(id)).filter((row) => row && typeof row.value === "number");
  const axes = [...view.axes, { name: metric, metric: true }];
  const gap = Math.max(110, (width - 120) / Math.max(1, axes.length - 1));
  const names = axes.map((axis) => nameLines(axis.name, Math.floor((gap - 6) / 6.6)));
  const top = 22 + 14 * Math.max(...names.map((lines) => lines.length));
  const [full, bottom] = [Math.max(width, 120 + gap * (axes.length - 1)), top + 282];
  const scales = axes.map((axis) => (axis.metric ? valueScale(view.y, bottom, top) : axisScale(axis, bottom, top)));
  const x = (at) => 60 + gap * at;
  const svg = svgOf(full, bottom + 20, `parallel coordinates of ${axes.length} axes and ${rows.length} trials`);
  const [colour, place01] = [rampOf(), valueScale(view.y, 0, 1)];
  const share = (row) => (mode === "min" ? 1 - place01(row.value) : place01(row.value));
  const lines = rows.map((row) => {
    const at = axes.map((axis, place) => {
      const value = axis.metric ? row.value : row.params[axis.name];
      const y = value === undefined ? null : scales[place](value);
      return y === null ? null : [x(place), y];
    });
    const path = at.map((point, place) => (point ? `${place && at[place - 1] ? "L" : "M"}${point[0].toFixed(1)} ${point[1].toFixed(1)}` : "")).join("");
    const line = s("path", { class: `strand${row.place === 0 ? " best" : ""}`, d: path, stroke: ctx.colour ? ctx.colour(row) : colour(share(row)) });
    svg.append(line);
    return { row, at, line };
  });
  axes.forEach((axis, place) => {
    const heading = names[place].map((text, line) => s("tspan", { x: x(place), dy: line ? 14 : 0 }, text));
    svg.append(
      s("line", { class: "axis", x1: x(place), x2: x(place), y1: top, y2: bottom }),
      s("text", { class: axis.metric ? "axis-name strong" : "axis-name", x: x(place), y: 16, "text-anchor": "middle" }, heading, s("title", {}, axis.name)),
      ...spaced(scales[place].marks(5), 12).map(([y, text]) => s("text", { class: "tick halo", x: x(place) + 6, y: y + 3.5 }, short(text, Math.floor((gap - 12) / CHARACTER)), s("title", {}, text))),
    );
  });
  const ends = lines.map(({ row }) => [x(axes.length - 1), 0, row]);
  svg.append(...edgeMarks(ends, view.y, top - 9, bottom + 9, full));
  parallelPointer(ctx, svg, lines, axes, gap);
  const notes = [
    view.left_out ? `the best 300 and a sample of the others: ${count(view.left_out, "trial")} not drawn` : "",
    beyondNote(view.y, rows.map((row) => [row.value, row.id])),
  ];
  return h("div", {}, h("div", { class: "scroll" }, svg), h("div", { class: "foot" }, ctx.legend || rampLegend("worst", "best"), h("span", {}, notes.filter(Boolean).join(" · "))));
}

// The marks that are at least `least` pixels from the one before.
function spaced(marks, least) {
  const kept = [];
  for (const mark of [...marks].sort((a, b) => a[0] - b[0])) if (!kept.length || mark[0] - kept[kept.length - 1][0] >= least) kept.push(mark);
  return kept;
}

function parallelPointer(ctx, svg, lines, axes, gap) {
  const closest = (event) => {
    const [px, py] = pointer(svg, event);
    const place = Math.min(axes.length - 2, Math.max(0, Math.floor((px - 60) / gap)));
    const part = Math.min(1, Math.max(0, (px - 60 - gap * place) / gap));
    let [hit, best] = [null, TOUCH];
    for (const line of lines) {
      const [one, other] = [line.at[place], line.at[place + 1]];
      if (!one || !other) continue;
      const away = Math.abs(one[1] + part * (other[1] - one[1]) - py);
      if (away <= best) [hit, best] = [line, away];
    }
    return hit;
  };
  let lit = null;
  svg.addEventListener("mousemove", (event) => {
    const hit = closest(event);
    if (lit && lit !== hit) lit.line.classList.remove("lit");
    lit = hit;
    if (!hit) return hideTip();
    hit.line.classList.add("lit");
    showTip(event, trialTip(ctx, hit.row));
  });
  svg.addEventListener("mouseleave", () => { if (lit) lit.line.classList.remove("lit"); hideTip(); });
  svg.addEventListener("click", (event) => { const hit = closest(event); if (hit) ctx.open(hit.row.id); });
}

// A bar for each share, with the interval in which it lies.
function importanceBars(view, width) {
  const shown = view.shares.slice(0, 20);
  const wide = Math.min(width, 860);
  const left = Math.min(0.36 * wide, 12 + Math.max(...shown.map((each) => textWidth(each.name, "12px"))));
  const right = wide - 128;
  const x = linear(0, Math.max(...shown.map((each) => each.high), 0.01), left, right);
  const svg = svgOf(wide, 26 * shown.length + 4, "importance of parameters");
  shown.forEach((each, place) => {
    const y = 26 * place + 13;
    svg.append(
      s("text", { class: "axis-name", x: left - 8, y: y + 4, "text-anchor": "end" }, fitted(each.name, left - 10, "12px"), s("title", {}, each.name)),
      s("rect", { class: "share", x: left, y: y - 8, width: Math.max(1, x(each.share) - left), height: 16, rx: 3 }),
      s("path", { class: "interval", d: `M${x(each.low).toFixed(1)} ${y}H${x(each.high).toFixed(1)}M${x(each.low).toFixed(1)} ${y - 4}v8M${x(each.high).toFixed(1)} ${y - 4}v8` }),
      s("text", { class: "tick", x: right + 10, y: y + 4 }, `${percent(each.share)}  (${intervalText(each)})`),
    );
  });
  return svg;
}

function intervalText(share) {
  const [low, high] = [Math.round(100 * share.low), Math.round(100 * share.high)];
  return low === high ? `${low} %` : `${low} to ${high} %`;
}

function slicePlot(ctx, axis, rows, view, width) {
  const [height, top, bottom] = [196, 28, 168];
  const svg = svgOf(width, height, `${ctx.doc.headline.run.metric} over ${axis.name}`);
  const y = valueScale(view.y, bottom - 8, top + 4);
  const left = leftRoom(y.marks(4), 70);
  const x = axisScale(axis, left + 10, width - 14);
  const points = [];
  for (const row of rows) {
    const at = row.params[axis.name] === undefined ? null : x(row.params[axis.name]);
    if (at !== null) points.push([at, y(row.value), row]);
  }
  svg.append(
    ...leftAxis(y.marks(4), left, width - left - 6),
    ...bottomAxis(x.marks(6), bottom, 0, width - 2),
    s("line", { class: "axis", x1: left, x2: width - 6, y1: bottom, y2: bottom }),
    s("text", { class: "axis-name strong", x: left, y: 14 }, fitted(`${axis.name}${axis.log ? " (log)" : ""}`, width - left - 4, "620 12px"), s("title", {}, axis.name)),
    ...statusDots(points.filter((point) => !beyond(view.y, point[2].value)), points.length > 400 ? 3.5 : 6),
    ...edgeMarks(points, view.y, top - 6, bottom, width),
  );
  pickable(ctx, svg, points);
  return svg;
}

function pickable(ctx, svg, points) {
  svg.addEventListener("mousemove", (event) => {
    const hit = nearest(points, ...pointer(svg, event), TOUCH);
    if (hit) showTip(event, trialTip(ctx, hit[2])); else hideTip();
  });
  svg.addEventListener("mouseleave", hideTip);
  svg.addEventListener("click", (event) => {
    const hit = nearest(points, ...pointer(svg, event), TOUCH);
    if (hit) ctx.open(hit[2].id);
  });
}

// How good trials are over two parameters: cells from 0 for the worst place to 1 for the best.
function contourPlot(ctx, contour, view, rows, width) {
  const [height, top, bottom] = [262, 28, 230];
  const [one, other] = [contour.x, contour.y].map((name) => view.axes.find((axis) => axis.name === name));
  const title = `${contour.y} over ${contour.x}`;
  const svg = svgOf(width, height, title);
  const y = axisScale(other, bottom, top);
  const left = leftRoom(y.marks(4), 80);
  const right = width - 12;
  const x = axisScale(one, left, right);
  const size = contour.cells.length;
  const [wide, high] = [(right - left) / size, (bottom - top) / size];
  const colour = rampOf();
  contour.cells.forEach((cells, row) => cells.forEach((value, column) => {
    if (value === null) return;
    svg.append(s("rect", { x: left + column * wide, y: bottom - (row + 1) * high, width: wide + 0.4, height: high + 0.4, fill: colour(value) }));
  }));
  const points = [];
  for (const row of rows) {
    const [px, py] = [x(row.params[contour.x]), y(row.params[contour.y])];
    if (px !== null && py !== null) points.push([px, py, row]);
  }
  const dot = points.length > 300 ? 1.6 : 3;
  svg.append(
    ...leftAxis(y.marks(4), left, 0),
    ...bottomAxis(x.marks(6), bottom, 0, width - 2),
    s("rect", { class: "frame", x: left, y: top, width: right - left, height: bottom - top }),
    s("path", { class: "dots rim", d: dots(points), "stroke-width": dot + 2 }),
    s("path", { class: "dots ink", d: dots(points), "stroke-width": dot }),
    s("text", { class: "axis-name strong", x: left, y: 14 }, fitted(title, width - left - 4, "620 12px"), s("title", {}, title)),
  );
  pickable(ctx, svg, points);
  return svg;
}

function frontPlot(ctx, view, rows, width) {
  const [name, other] = view.metrics;
  const [xs, ys] = view.axes || [];
  const valued = rows.filter((row) => typeof row.metrics?.[name] === "number" && typeof row.metrics?.[other] === "number");
  const [height, left, bottom] = [300, 62, 262];
  const svg = svgOf(width, height, `${other} over ${name}`);
  const [x, y] = [valueScale(xs, left + 10, width - 16), valueScale(ys, bottom - 8, 24)];
  const best = new Set(view.trials);
  const points = valued.map((row) => [x(row.metrics[name]), y(row.metrics[other]), row]);
  const front = points.filter((point) => best.has(point[2].id)).sort((a, b) => a[0] - b[0]);
  svg.append(
    ...leftAxis(y.marks(5), left, width - left - 8),
    ...bottomAxis(x.marks(6), bottom, 0, width - 2),
    s("text", { class: "axis-name", x: (width + left) / 2, y: height - 6, "text-anchor": "middle" }, short(name, 60)),
    s("text", { class: "axis-name", x: left, y: 12 }, short(other, 60)),
    ...statusDots(points, 5.5),
    s("path", { class: "front", d: front.map(([px, py], at) => `${at ? "L" : "M"}${px.toFixed(1)} ${py.toFixed(1)}`).join("") }),
    s("path", { class: "dots", d: dots(front), "stroke-width": 9, stroke: "var(--best)" }),
  );
  pickable(ctx, svg, points);
  const notes = [[xs, name], [ys, other]].map(([axis, metric]) => beyondNote(axis, valued.map((row) => [row.metrics[metric], row.id])).replace("axis", `axis of ${short(metric, 30)}`));
  const key = h("div", { class: "legend" }, keyOf("--best", "on the front"), statusKeys(valued, {}));
  return h("div", {}, svg, h("div", { class: "foot" }, key, h("span", {}, notes.filter((note) => note).join(" · "))));
}
