// Elements, texts and numbers. Text reaches the page by textContent alone.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (typeof value !== "number") return asText(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  const size = Math.abs(value);
  if (size >= 1e6 || (size < 1e-3 && size > 0)) return value.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e");
  return String(Number(value.toPrecision(5)));
}

function asText(value) {
  if (value === undefined || value === null) return "–";
  return typeof value === "string" ? value : JSON.stringify(value);
}

function short(text, most) {
  const characters = Array.from(text);
  return characters.length > most ? characters.slice(0, most - 1).join("") + "…" : text;
}

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif';
const pen = document.createElement("canvas").getContext("2d");

function textWidth(text, font) {
  pen.font = `${font} ${FONT}`;
  return pen.measureText(text).width;
}

// The text, or as much of it as has room in pixels.
function fitted(text, room, font) {
  if (textWidth(text, font) <= room) return text;
  let most = Math.max(1, Math.floor((room / textWidth(text, font)) * Array.from(text).length));
  while (most > 1 && textWidth(short(text, most), font) > room) most--;
  return short(text, most);
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 59.5) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
  if (hours >= 48) return `${(whole / 86400).toFixed(1)} days`;
  const two = (part) => String(part).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

function hours(seconds) {
  const found = seconds / 3600;
  return found >= 100 ? found.toFixed(0) : found >= 1 ? found.toFixed(1) : found.toFixed(2);
}

function percent(share) {
  if (share === null || share === undefined) return "–";
  const found = 100 * share;
  return `${found > 0 && found < 1 ? found.toFixed(1) : found.toFixed(0)} %`;
}

function moment(seconds) {
  if (!seconds) return "–";
  const at = new Date(seconds * 1000);
  const two = (part) => String(part).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

function count(of, noun) {
  return `${of.toLocaleString("en")} ${noun}${of === 1 ? "" : "s"}`;
}

const STATUSES = ["succeeded", "running", "queued", "paused", "pruned", "stopped", "failed", "lost", "restarted", "idle"];

function statusColour(status) {
  return css(`--${STATUSES.includes(status) ? status : "queued"}`);
}

function chip(status, text) {
  const mark = h("i", { class: "key" });
  mark.style.background = `var(--${status === "best" || STATUSES.includes(status) ? status : "queued"})`;
  return h("span", { class: "chip" }, mark, text || status);
}

function command(text) {
  const code = h("code", { tabindex: "0" }, text);
  const button = h("button", { type: "button", class: "quiet", onclick: copy }, "Copy");
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  }
  return h("div", { class: "command" }, code, button);
}

function pairs(entries, className) {
  const rows = entries.map(([name, value]) => [
    h("dt", { title: name }, short(name, 60)),
    h("dd", { title: asText(value) }, typeof value === "number" ? number(value) : short(asText(value), 600)),
  ]);
  return h("dl", { class: className || "pairs" }, rows);
}

const tip = h("div", { class: "tip", hidden: true });

function showTip(event, lines) {
  tip.replaceChildren(...lines.map((line, at) => h("div", { class: at ? "" : "strong" }, line)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, innerWidth - box.width - 8);
  const top = event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 12 : event.clientY + 18;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, top)}px`;
}

function hideTip() {
  tip.hidden = true;
}

// Draw again when the colours or the width of the window change. The height changes as phones hide their bars.
function redrawWithWindow(redraw) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let [width, timer] = [innerWidth, 0];
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(timer);
    timer = setTimeout(redraw, 200);
  });
}
