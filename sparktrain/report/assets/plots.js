// Charts of a run. Each function returns an element that is `width` pixels wide.

const TOUCH = 14;

function trialTip(ctx, row, extra) {
  const params = Object.entries(row.params || {}).slice(0, 12);
  const metric = ctx.doc.headline.metric;
  return [
    `trial ${row.id} · ${row.status}`,
    row.value === undefined ? null : `${metric} ${number(row.value)}`,
    ...(extra || []),
    ...params.map(([name, value]) => `${short(name, 30)} = ${short(typeof value === "number" ? number(value) : asText(value), 40)}`),
  ].filter((line) => line !== null);
}

function uplot(width, height, options, data, parent) {
  const axis = { stroke: css("--muted"), grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--grid"), width: 1, size: 4 } };
  const font = "11px system-ui, sans-serif";
  const values = (_, splits) => splits.map((each) => (each === null ? "" : number(each)));
  const axes = [
    { ...axis, font, values, label: options.x, labelSize: 20, labelFont: font, size: 34 },
    { ...axis, font, values, size: 62 },
  ];
  const { x, ...rest } = options;
  return new uPlot({ width, height, legend: { show: false }, axes, padding: [10, 14, 0, 0], ...rest }, data, parent);
}

function historyPlot(ctx, view, width) {
  const box = h("div", { class: "plot" });
  const range = robust([...view.values, ...view.best]);
  const xs = view.values.map((_, at) => at + 1);
  const rows = view.trials.map((id) => ctx.row(id));
  const pruned = view.values.map((value, at) => (rows[at] && rows[at].status === "pruned" ? value : null));
  const others = view.values.map((value, at) => (pruned[at] === null ? value : null));
  const dot = (colour) => ({ stroke: colour, width: 0, paths: () => null, points: { show: true, size: view.values.length > 2000 ? 3 : 5, fill: colour, stroke: colour } });
  const pad = (range.high - range.low) * 0.05;
  const plot = uplot(width, 260, {
    x: "trials ended",
    scales: { x: { time: false }, y: { range: () => [range.low - pad, range.high + pad] } },
    cursor: { points: { show: false }, drag: { x: true, y: false } },
    series: [{}, dot(css("--pruned")), dot(css("--point")), { stroke: css("--accent"), width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }],
  }, [xs, pruned, others, view.best], box);
  plot.over.addEventListener("mousemove", (event) => {
    const at = plot.cursor.idx;
    const row = at === null || at === undefined ? null : rows[at];
    if (row) showTip(event, trialTip(ctx, row, [`best so far ${number(view.best[at])}`]));
  });
  plot.over.addEventListener("mouseleave", hideTip);
  plot.over.addEventListener("click", () => {
    if (plot.cursor.idx !== null && rows[plot.cursor.idx]) ctx.open(view.trials[plot.cursor.idx]);
  });
  const key = h("div", { class: "legend" }, keyOf("--accent", "best so far", true), keyOf("--point", "result"), pruned.some((each) => each !== null) && keyOf("--pruned", "pruned"));
  return h("div", {}, box, h("div", { class: "foot" }, key, h("span", {}, cutNote(range.cut))));
}

function keyOf(variable, text, line) {
  const mark = h("i", { class: line ? "key line" : "key" });
  mark.style.background = `var(${variable})`;
  return h("span", { class: "keyed" }, mark, text);
}

function parallelPlot(ctx, view, width) {
  const { metric, mode } = ctx.doc.headline;
  const rows = view.trials.map((id) => ctx.row(id)).filter((row) => row && typeof row.value === "number");
  const range = robust(rows.map((row) => row.value));
  const axes = [...view.axes, { name: metric, kind: "number", low: range.low, high: range.high, metric: true }];
  const gap = Math.max(110, (width - 120) / Math.max(1, axes.length - 1));
  const [full, height, top, bottom] = [Math.max(width, 120 + gap * (axes.length - 1)), 340, 34, 316];
  const scales = axes.map((axis) => axisScale(axis, bottom, top));
  const x = (at) => 60 + gap * at;
  const svg = svgOf(full, height, `parallel coordinates of ${axes.length} axes and ${rows.length} trials`);
  const share = (row) => ((row.value - range.low) / (range.high - range.low)) * (mode === "min" ? -1 : 1) + (mode === "min" ? 1 : 0);
  const lines = rows.map((row) => {
    const at = axes.map((axis, place) => {
      const value = axis.metric ? Math.min(range.high, Math.max(range.low, row.value)) : row.params[axis.name];
      const y = value === undefined ? null : scales[place](value);
      return y === null ? null : [x(place), y];
    });
    const path = at.map((point, place) => (point ? `${place && at[place - 1] ? "L" : "M"}${point[0].toFixed(1)} ${point[1].toFixed(1)}` : "")).join("");
    const line = s("path", { class: "strand", d: path, stroke: ramp(share(row)) });
    svg.append(line);
    return { row, at, line };
  });
  axes.forEach((axis, place) => {
    const marks = scales[place].marks(5);
    svg.append(
      s("line", { class: "axis", x1: x(place), x2: x(place), y1: top, y2: bottom }),
      s("text", { class: axis.metric ? "axis-name strong" : "axis-name", x: x(place), y: 16, "text-anchor": "middle" }, short(axis.name, Math.floor(gap / 7)), s("title", {}, axis.name)),
      ...marks.slice(0, 24).map(([y, text]) => s("text", { class: "tick halo", x: x(place) + 6, y: y + 3.5 }, short(text, 12))),
    );
  });
  const closest = (event) => {
    const [px, py] = pointer(svg, event);
    const place = Math.min(axes.length - 2, Math.max(0, Math.floor((px - 60) / gap)));
    const part = Math.min(1, Math.max(0, (px - x(place)) / gap));
    let [found, best] = [null, TOUCH];
    for (const each of lines) {
      const [one, other] = [each.at[place], each.at[place + 1]];
      if (!one || !other) continue;
      const away = Math.abs(one[1] + part * (other[1] - one[1]) - py);
      if (away <= best) [found, best] = [each, away];
    }
    return found;
  };
  let lit = null;
  svg.addEventListener("mousemove", (event) => {
    const found = closest(event);
    if (lit && lit !== found) lit.line.classList.remove("lit");
    lit = found;
    if (!found) return hideTip();
    found.line.classList.add("lit");
    showTip(event, trialTip(ctx, found.row));
  });
  svg.addEventListener("mouseleave", () => { if (lit) lit.line.classList.remove("lit"); hideTip(); });
  svg.addEventListener("click", (event) => { const found = closest(event); if (found) ctx.open(found.row.id); });
  const left = view.left_out ? `the best 300 and a sample of the others: ${count(view.left_out, "trial")} not drawn` : "";
  return h("div", {}, h("div", { class: "scroll" }, svg), h("div", { class: "foot" }, rampLegend("worst", "best"), h("span", {}, left)));
}

function importanceBars(view, width) {
  const most = view.shares.length ? view.shares[0].share : 1;
  const rows = view.shares.slice(0, 20).map((each) => {
    const bar = h("span", { class: "bar" });
    bar.style.width = `${(100 * each.share) / (most || 1)}%`;
    return h("div", { class: "bar-row" }, h("span", { class: "bar-name", title: each.name }, short(each.name, 40)), h("span", { class: "bar-track" }, bar), h("span", { class: "bar-value" }, percent(each.share)));
  });
  return h("div", { class: "bars" }, rows);
}

function slicePlot(ctx, axis, rows, range, width) {
  const [height, left, bottom] = [190, 56, 164];
  const svg = svgOf(width, height, `${ctx.doc.headline.metric} over ${axis.name}`);
  const x = axisScale(axis, left + 8, width - 12);
  const y = linear(range.low, range.high, bottom - 6, 26);
  const points = [];
  for (const row of rows) {
    const at = row.params[axis.name] === undefined ? null : x(row.params[axis.name]);
    if (at !== null && row.value >= range.low && row.value <= range.high) points.push([at, y(row.value), row]);
  }
  svg.append(
    ...leftAxis(y, y.ticks(4).map((tick) => [y(tick), number(tick)]), left, width - left - 6).flat().filter(Boolean),
    ...bottomAxis(x.marks(3).slice(0, 8), bottom, 0).flat().filter(Boolean),
    s("line", { class: "axis", x1: left, x2: width - 6, y1: bottom, y2: bottom }),
    s("text", { class: "axis-name strong", x: left, y: 14 }, short(axis.name, Math.floor((width - left) / 7)), s("title", {}, axis.name)),
    s("path", { class: "dots", d: dots(points), "stroke-width": points.length > 400 ? 3.5 : 5.5 }),
  );
  pickable(ctx, svg, points);
  return svg;
}

function pickable(ctx, svg, points) {
  svg.addEventListener("mousemove", (event) => {
    const found = nearest(points, ...pointer(svg, event), TOUCH);
    if (found) showTip(event, trialTip(ctx, found[2])); else hideTip();
  });
  svg.addEventListener("mouseleave", hideTip);
  svg.addEventListener("click", (event) => {
    const found = nearest(points, ...pointer(svg, event), TOUCH);
    if (found) ctx.open(found[2].id);
  });
}

function contourPlot(ctx, view, axes, rows, range, width) {
  const [height, left, top, bottom] = [260, 62, 26, 228];
  const [one, other] = [axes.find((axis) => axis.name === view.x), axes.find((axis) => axis.name === view.y)];
  const svg = svgOf(width, height, `${ctx.doc.headline.metric} over ${view.x} and ${view.y}`);
  const [x, y] = [axisScale(one, left, width - 12), axisScale(other, bottom, top)];
  const size = view.cells.length;
  const [wide, high] = [(width - 12 - left) / size, (bottom - top) / size];
  const turned = ctx.doc.headline.mode === "min";
  const known = view.cells.flat().filter((value) => value !== null);
  const [low, span] = [Math.min(...known), Math.max(...known) - Math.min(...known) || 1];
  view.cells.forEach((cells, row) => cells.forEach((value, column) => {
    if (value === null) return;
    const share = (value - low) / span;
    svg.append(s("rect", { x: left + column * wide, y: bottom - (row + 1) * high, width: wide + 0.4, height: high + 0.4, fill: ramp(turned ? 1 - share : share), opacity: 0.85 }));
  }));
  const points = [];
  for (const row of rows) {
    const [px, py] = [x(row.params[view.x]), y(row.params[view.y])];
    if (px !== null && py !== null) points.push([px, py, row]);
  }
  svg.append(
    ...leftAxis(y, y.marks(4), left, 0).flat().filter(Boolean),
    ...bottomAxis(x.marks(3), bottom, 0).flat().filter(Boolean),
    s("rect", { class: "frame", x: left, y: top, width: width - 12 - left, height: bottom - top }),
    s("path", { class: "dots dark", d: dots(points), "stroke-width": points.length > 300 ? 1.8 : 3 }),
    s("text", { class: "axis-name strong", x: left, y: 14 }, short(`${view.y} over ${view.x}`, Math.floor((width - left) / 7)), s("title", {}, `${view.y} over ${view.x}`)),
  );
  pickable(ctx, svg, points);
  return svg;
}

function frontPlot(ctx, view, rows, width) {
  const [name, other] = view.metrics;
  const found = rows.filter((row) => typeof row.metrics?.[name] === "number" && typeof row.metrics?.[other] === "number");
  const [xs, ys] = [robust(found.map((row) => row.metrics[name])), robust(found.map((row) => row.metrics[other]))];
  const [height, left, bottom] = [300, 62, 262];
  const svg = svgOf(width, height, `${other} over ${name}`);
  const [x, y] = [linear(xs.low, xs.high, left + 10, width - 16), linear(ys.low, ys.high, bottom - 8, 20)];
  const best = new Set(view.trials);
  const points = found.map((row) => [x(row.metrics[name]), y(row.metrics[other]), row]);
  const front = points.filter((point) => best.has(point[2].id)).sort((a, b) => a[0] - b[0]);
  svg.append(
    ...leftAxis(y, y.ticks(5).map((tick) => [y(tick), number(tick)]), left, width - left - 8).flat().filter(Boolean),
    ...bottomAxis(x.ticks(6).map((tick) => [x(tick), number(tick)]), bottom, 0).flat().filter(Boolean),
    s("text", { class: "axis-name", x: (width + left) / 2, y: height - 6, "text-anchor": "middle" }, short(name, 60)),
    s("text", { class: "axis-name", x: left, y: 12 }, short(other, 60)),
    s("path", { class: "dots", d: dots(points), "stroke-width": 5 }),
    s("path", { class: "front", d: front.map(([px, py], at) => `${at ? "L" : "M"}${px.toFixed(1)} ${py.toFixed(1)}`).join("") }),
    s("path", { class: "dots accent", d: dots(front), "stroke-width": 8 }),
  );
  pickable(ctx, svg, points);
  return svg;
}
