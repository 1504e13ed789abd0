// Scales, axes and colours of the charts that are drawn here.

const CHARACTER = 6.4; // about how wide a character of a tick is, in pixels

function linear(low, high, from, to) {
  const span = high - low || 1;
  const scale = (value) => from + ((value - low) / span) * (to - from);
  scale.ticks = (wanted, whole) => ticksOf(low, high, wanted, whole);
  return scale;
}

function logarithmic(low, high, from, to) {
  const inner = linear(Math.log10(low), Math.log10(high), from, to);
  const scale = (value) => inner(Math.log10(value));
  scale.ticks = (wanted, whole) => powersOf(low, high, wanted) || ticksOf(low, high, wanted, whole);
  return scale;
}

// Powers of ten; null where they are too few.
function powersOf(low, high, wanted) {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  if (last - first < 1) return null;
  const step = Math.max(1, Math.ceil((last - first) / wanted));
  const powers = [];
  for (let power = first; power <= last; power += step) powers.push(Number(`1e${power}`));
  return powers;
}

// Round values from `low` to `high`; whole ones where `whole` is set.
function ticksOf(low, high, wanted, whole) {
  const span = high - low;
  if (!(span > 0) || !Number.isFinite(span)) return [low];
  const rough = span / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const round = [1, 2, 5, 10].map((factor) => factor * power).find((factor) => factor >= rough) || 10 * power;
  const step = whole ? Math.max(1, Math.round(round)) : round;
  const ticks = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place++) {
    ticks.push(Number((place * step).toPrecision(12)));
    if (ticks.length > 50) break;
  }
  return ticks;
}

// Both ends of the axis of a metric, which are not the same.
function endsOf(axis) {
  const { low, high, log } = axis || { low: 0, high: 1 };
  if (low < high) return { low, high };
  if (log) return { low: low / 2, high: high * 2 };
  const around = axis && axis.integer ? 1 : Math.abs(low) * 0.1 || 1;
  return { low: low - around, high: high + around };
}

// The scale of a metric: what lies beyond the axis is placed at its nearer end.
function valueScale(axis, from, to) {
  const { low, high } = endsOf(axis);
  const inner = (axis && axis.log ? logarithmic : linear)(low, high, from, to);
  const scale = (value) => inner(Math.min(high, Math.max(low, value)));
  scale.marks = (wanted) => inner.ticks(wanted, axis && axis.integer).map((tick) => [inner(tick), number(tick)]);
  return scale;
}

// -1 below the axis, 1 above it, else 0.
function beyond(axis, value) {
  return !axis ? 0 : value < axis.low ? -1 : value > axis.high ? 1 : 0;
}

// The values beyond the axis in words, the farthest first; `entries` are pairs of a value and the trial that has it.
function beyondNote(axis, entries) {
  const outside = entries.filter(([value]) => beyond(axis, value));
  if (!outside.length) return "";
  const distance = ([value]) => (value > axis.high ? value - axis.high : axis.low - value);
  outside.sort((a, b) => distance(b) - distance(a));
  const listed = outside.slice(0, 3).map(([value, trial]) => `${value > axis.high ? "▲" : "▼"} ${number(value)} (trial ${trial})`);
  const more = outside.length > 3 ? ` and ${count(outside.length - 3, "other value")}` : "";
  return `beyond the axis: ${listed.join(", ")}${more}`;
}

// Triangles at the edge of a chart for values beyond the axis, with the values as far as they have room up to `right`.
function edgeMarks(points, axis, top, bottom, right) {
  const marks = [];
  let free = -Infinity;
  const outside = points.filter((point) => beyond(axis, point[2].value)).sort((a, b) => a[0] - b[0]);
  for (const [place, [x, , row]] of outside.entries()) {
    const side = beyond(axis, row.value);
    const [tip, base] = side > 0 ? [top, top + 8] : [bottom, bottom - 8];
    const text = number(row.value);
    marks.push(s("path", { class: "edge", d: `M${x.toFixed(1)} ${tip}l5 ${base - tip}h-10z`, fill: `var(--${row.status})` }, s("title", {}, `trial ${row.id}: ${text}`)));
    const room = CHARACTER * text.length;
    const next = place + 1 < outside.length ? outside[place + 1][0] - 6 : right;
    const before = x + 8 + room > next;
    if (x - (before ? room + 14 : 0) < free) {
      free = Math.max(free, x + 8);
      continue;
    }
    free = x + (before ? 8 : room + 14);
    marks.push(s("text", { class: "tick halo", x: before ? x - 7 : x + 7, y: side > 0 ? top + 9 : bottom - 2, "text-anchor": before ? "end" : "start" }, text));
  }
  return marks;
}

// The texts of a category as they are in the document, and as this language writes the same numbers.
function placesOf(texts) {
  const places = new Map();
  texts.forEach((text, place) => {
    try {
      const other = JSON.stringify(JSON.parse(text));
      if (!places.has(other)) places.set(other, place);
    } catch {
      // it is no number, list or dict
    }
  });
  texts.forEach((text, place) => places.set(text, place));
  return places;
}

// A scale for one parameter; it returns null for a value that the axis does not have.
function axisScale(axis, from, to) {
  if (axis.kind === "category") {
    const places = placesOf(axis.values);
    const inner = linear(0, Math.max(1, axis.values.length - 1), from, to);
    const alone = (from + to) / 2;
    const scale = (value) => {
      const place = places.get(short200(asText(value)));
      return place === undefined ? null : axis.values.length === 1 ? alone : inner(place);
    };
    scale.marks = () => axis.values.map((text, place) => [axis.values.length === 1 ? alone : inner(place), text]);
    return scale;
  }
  const inner = (axis.log ? logarithmic : linear)(axis.low, axis.high, from, to);
  const scale = (value) => (typeof value === "number" && (!axis.log || value > 0) ? inner(value) : null);
  scale.marks = (wanted) => (axis.ticks || inner.ticks(wanted, axis.integer)).map((tick) => [inner(tick), number(tick)]);
  return scale;
}

function short200(text) {
  return Array.from(text).slice(0, 200).join("");
}

const RAMP_STEPS = 5;

function rampColours() {
  return Array.from({ length: RAMP_STEPS }, (_, place) => css(`--ramp-${place}`));
}

// From the worst (0) to the best (1): a function, so that a chart of thousands of lines reads the colours once.
function rampOf() {
  const stops = rampColours().map((colour) => [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16)));
  return (share) => {
    const at = Math.min(1, Math.max(0, share)) * (stops.length - 1);
    const place = Math.min(stops.length - 2, Math.floor(at));
    const mixed = stops[place].map((channel, index) => Math.round(channel + (at - place) * (stops[place + 1][index] - channel)));
    return `rgb(${mixed.join(",")})`;
  };
}

function rampLegend(low, high) {
  const bar = h("span", { class: "ramp" });
  bar.style.background = `linear-gradient(to right, ${rampColours().join(", ")})`;
  return h("div", { class: "legend" }, h("span", {}, low), bar, h("span", {}, high));
}

function svgOf(width, height, label) {
  const box = { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label };
  return s("svg", box);
}

// The room that the labels of a left axis take.
function leftRoom(marks, most) {
  return Math.min(most, 14 + CHARACTER * Math.max(2, ...marks.map(([, text]) => Array.from(text).length)));
}

function leftAxis(marks, x, width) {
  const room = Math.floor((x - 8) / CHARACTER);
  return marks.flatMap(([y, text]) => [
    width ? s("line", { class: "grid", x1: x, x2: x + width, y1: y, y2: y }) : null,
    s("text", { class: "tick", x: x - 6, y: y + 3.5, "text-anchor": "end" }, short(text, room), s("title", {}, text)),
  ]).filter(Boolean);
}

// Labels that would touch the one before them are left out; those of categories are cut to their room.
function bottomAxis(marks, y, height, right) {
  const gap = marks.length > 1 ? Math.abs(marks[1][0] - marks[0][0]) : Infinity;
  const parts = [];
  let free = -Infinity;
  for (const [x, text] of [...marks].sort((a, b) => a[0] - b[0])) {
    const label = short(text, Math.max(3, Math.min(18, Math.floor((gap === Infinity ? 200 : Math.max(gap, 40)) / CHARACTER) - 1)));
    const half = (CHARACTER * Array.from(label).length) / 2;
    if (height) parts.push(s("line", { class: "grid", x1: x, x2: x, y1: y - height, y2: y }));
    if (x - half < free) continue;
    free = x + half + 6;
    const atEnd = right !== undefined && x + half > right;
    parts.push(s("text", { class: "tick", x: atEnd ? right : x, y: y + 15, "text-anchor": atEnd ? "end" : "middle" }, label, s("title", {}, text)));
  }
  return parts;
}

// Round dots by one path: a thousand elements would be slow.
function dots(points) {
  return points.map(([x, y]) => `M${x.toFixed(1)} ${y.toFixed(1)}h0`).join("");
}

// A path for each status among the points, in its colour.
function statusDots(points, size) {
  const groups = new Map();
  for (const point of points) {
    if (!groups.has(point[2].status)) groups.set(point[2].status, []);
    groups.get(point[2].status).push(point);
  }
  return [...groups].map(([status, part]) => s("path", { class: "dots", d: dots(part), "stroke-width": size, stroke: `var(--${status})` }));
}

function statusKeys(rows, words) {
  const used = STATUSES.filter((status) => rows.some((row) => row && row.status === status));
  return used.map((status) => keyOf(`--${status}`, words[status] || status));
}

function nearest(points, x, y, most) {
  let [closest, best] = [null, most * most];
  for (const point of points) {
    const away = (point[0] - x) ** 2 + (point[1] - y) ** 2;
    if (away < best) [closest, best] = [point, away];
  }
  return closest;
}

function pointer(svg, event) {
  const box = svg.getBoundingClientRect();
  const view = svg.viewBox.baseVal;
  return [((event.clientX - box.left) / box.width) * view.width, ((event.clientY - box.top) / box.height) * view.height];
}
