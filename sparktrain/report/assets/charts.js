// Scales, axes and colours of the charts that are drawn here.

function linear(low, high, from, to) {
  const span = high - low || 1;
  const scale = (value) => from + ((value - low) / span) * (to - from);
  scale.ticks = (wanted) => ticksOf(low, high, wanted);
  return scale;
}

function logarithmic(low, high, from, to) {
  const inner = linear(Math.log10(low), Math.log10(high), from, to);
  const scale = (value) => inner(Math.log10(value));
  scale.ticks = (wanted) => {
    const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
    if (last - first < 1) return ticksOf(low, high, wanted);
    const step = Math.max(1, Math.ceil((last - first) / wanted));
    const found = [];
    for (let power = first; power <= last; power += step) found.push(10 ** power);
    return found;
  };
  return scale;
}

function ticksOf(low, high, wanted) {
  const span = high - low;
  if (!(span > 0) || !Number.isFinite(span)) return [low];
  const rough = span / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough) || 10 * power;
  const found = [];
  for (let place = Math.ceil(low / step); place * step <= high + step * 1e-9; place++) {
    found.push(Number((place * step).toPrecision(12)));
    if (found.length > 50) break;
  }
  return found;
}

// Both ends of what most values span: a few far away would flatten all others.
function robust(values) {
  const sorted = values.filter((each) => each !== null && Number.isFinite(each)).sort((a, b) => a - b);
  if (!sorted.length) return { low: 0, high: 1, cut: 0 };
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
  let [low, high] = [sorted[0], sorted[sorted.length - 1]];
  const [start, end] = [at(0.03), at(0.97)];
  const spread = end - start;
  if (sorted.length >= 8 && spread > 0) {
    if (high - end > 3 * spread) high = end + 0.1 * spread;
    if (start - low > 3 * spread) low = start - 0.1 * spread;
  }
  const cut = sorted.filter((each) => each < low || each > high).length;
  if (low === high) [low, high] = [low - (Math.abs(low) * 0.1 || 1), high + (Math.abs(high) * 0.1 || 1)];
  return { low, high, cut };
}

function cutNote(cut) {
  return cut ? `${count(cut, "value")} beyond the axis ${cut === 1 ? "is" : "are"} not drawn` : "";
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
  scale.marks = (wanted) => inner.ticks(wanted).map((tick) => [inner(tick), number(tick)]);
  return scale;
}

function short200(text) {
  return Array.from(text).slice(0, 200).join("");
}

const RAMP = [
  [0.0, [49, 54, 149]], [0.25, [54, 124, 170]], [0.5, [58, 170, 150]], [0.75, [156, 204, 96]], [1.0, [250, 218, 70]],
];

// From dark blue (worst) to yellow (best).
function ramp(share) {
  const at = Math.min(1, Math.max(0, share));
  const next = Math.max(1, RAMP.findIndex(([place]) => place >= at));
  const [[low, one], [high, other]] = [RAMP[next - 1], RAMP[next]];
  const part = (at - low) / (high - low);
  const mixed = one.map((channel, index) => Math.round(channel + part * (other[index] - channel)));
  return `rgb(${mixed.join(",")})`;
}

function rampLegend(low, high) {
  const stops = RAMP.map(([place]) => `${ramp(place)} ${100 * place}%`).join(", ");
  const bar = h("span", { class: "ramp" });
  bar.style.background = `linear-gradient(to right, ${stops})`;
  return h("div", { class: "legend" }, h("span", {}, low), bar, h("span", {}, high));
}

function svgOf(width, height, label) {
  const box = { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label };
  return s("svg", box);
}

function leftAxis(scale, marks, x, width) {
  return marks.map(([y, text]) => [
    width ? s("line", { class: "grid", x1: x, x2: x + width, y1: y, y2: y }) : null,
    s("text", { class: "tick", x: x - 6, y: y + 3.5, "text-anchor": "end" }, short(text, 14)),
  ]);
}

function bottomAxis(marks, y, height) {
  return marks.map(([x, text]) => [
    height ? s("line", { class: "grid", x1: x, x2: x, y1: y - height, y2: y }) : null,
    s("text", { class: "tick", x, y: y + 15, "text-anchor": "middle" }, short(text, 12)),
  ]);
}

// Round dots by one path: a thousand elements would be slow.
function dots(points) {
  return points.map(([x, y]) => `M${x.toFixed(1)} ${y.toFixed(1)}h0`).join("");
}

function nearest(points, x, y, most) {
  let [found, best] = [null, most * most];
  for (const point of points) {
    const away = (point[0] - x) ** 2 + (point[1] - y) ** 2;
    if (away < best) [found, best] = [point, away];
  }
  return found;
}

function pointer(svg, event) {
  const box = svg.getBoundingClientRect();
  const view = svg.viewBox.baseVal;
  return [((event.clientX - box.left) / box.width) * view.width, ((event.clientY - box.top) / box.height) * view.height];
}
