// Where runs come from: refits and warm starts as lines between runs, extensions as a line of text in a run.

const MOST_PARTS = 20;
const MOST_NODES = 120;
const NODE = { width: 216, height: 46, gap: 130, between: 14 };
const BEND = 36;

function folderOf(directory) {
  return directory.replace(/^file:\/\//, "").replace(/\/+$/, "");
}

class Lineage {
  constructor(rows) {
    this.nodes = new Map();
    this.edges = [];
    const places = new Map(rows.map((row) => [folderOf(row.label.directory), row]));
    for (const row of rows) {
      const parents = row.lineage?.parents || [];
      if (parents.length || row.lineage?.extended?.length) this.add(row.id, row);
      for (const parent of parents) {
        const folder = folderOf(parent.directory);
        const parentRow = places.get(folder) || null;
        const id = parentRow ? parentRow.id : `/${folder}`; // no run is called so
        this.add(id, parentRow, folder);
        this.edges.push({ from: id, to: row.id, text: parent.trial === undefined || parent.trial === null ? parent.link : `${parent.link} of trial ${parent.trial}` });
      }
    }
  }

  add(id, row, folder) {
    if (!this.nodes.has(id)) this.nodes.set(id, { id, row, folder });
  }

  // The connected parts, the largest first.
  parts() {
    if (this.found) return this.found;
    const near = new Map([...this.nodes.keys()].map((id) => [id, []]));
    for (const { from, to } of this.edges) {
      near.get(from).push(to);
      near.get(to).push(from);
    }
    const seen = new Set();
    this.found = [];
    for (const id of this.nodes.keys()) {
      if (seen.has(id)) continue;
      const part = [];
      const waiting = [id];
      seen.add(id);
      while (waiting.length) {
        const next = waiting.pop();
        part.push(next);
        for (const other of near.get(next)) if (!seen.has(other)) { seen.add(other); waiting.push(other); }
      }
      const members = new Set(part);
      this.found.push({ nodes: part.map((each) => this.nodes.get(each)), edges: this.edges.filter((edge) => members.has(edge.to)) });
    }
    return this.found.sort((a, b) => b.nodes.length - a.nodes.length);
  }

  partOf(id) {
    return this.nodes.has(id) ? this.parts().find((part) => part.nodes.some((node) => node.id === id)) : null;
  }
}

// How far each run is from those that continue from none. A run that names itself ends after as many turns as there are runs.
function depthsOf(part) {
  const depths = new Map(part.nodes.map((node) => [node.id, 0]));
  for (let turn = 0, moved = true; moved && turn < part.nodes.length; turn++) {
    moved = false;
    for (const { from, to } of part.edges) {
      if (from !== to && depths.get(to) <= depths.get(from) && depths.get(from) + 1 < part.nodes.length) {
        depths.set(to, depths.get(from) + 1);
        moved = true;
      }
    }
  }
  return depths;
}

function lineageGraph(ctx, whole, here) {
  const nodes = whole.nodes.slice(0, MOST_NODES);
  const inside = new Set(nodes.map((node) => node.id));
  const edges = whole.edges.filter((edge) => inside.has(edge.from) && inside.has(edge.to));
  const depths = depthsOf({ nodes, edges });
  const columns = [];
  const started = (node) => node.row?.clock?.started || 0;
  for (const node of nodes.sort((a, b) => depths.get(a.id) - depths.get(b.id) || started(a) - started(b))) (columns[depths.get(node.id)] ||= []).push(node);
  const at = new Map();
  columns.filter(Boolean).forEach((column, x) => {
    // A run stands near those that it comes from.
    const want = (node) => edges.filter((edge) => edge.to === node.id && at.has(edge.from)).reduce((sum, edge, _, all) => sum + at.get(edge.from)[1] / all.length, 0);
    column.sort((a, b) => want(a) - want(b)).forEach((node, y) => at.set(node.id, [2 + x * (NODE.width + NODE.gap), 2 + y * (NODE.height + NODE.between)]));
  });
  const high = Math.max(...[...at.values()].map(([, y]) => y)) + NODE.height + 4;
  const wide = Math.max(...[...at.values()].map(([x]) => x)) + NODE.width + 4;
  const svg = svgOf(wide, high, `lineage of ${count(nodes.length, "run")}`);
  for (const edge of edges) {
    const [[x1, y1], [x2, y2]] = [at.get(edge.from), at.get(edge.to)];
    const [start, end, middle] = [x1 + NODE.width, x2, y1 + NODE.height / 2];
    const target = y2 + NODE.height / 2;
    svg.append(s("path", { class: "descent", d: `M${start} ${middle}C${start + BEND / 2} ${middle} ${start + BEND / 2} ${target} ${start + BEND} ${target}H${end}` }),
      s("text", { class: "tick halo", x: end - 6, y: target - 4, "text-anchor": "end" }, edge.text));
  }
  for (const node of nodes) svg.append(lineageNode(ctx, node, at.get(node.id), node.id === here));
  const more = whole.nodes.length - nodes.length;
  return h("div", { class: "scroll lineage" }, svg, more > 0 && h("p", { class: "muted" }, `and ${count(more, "other run")}`));
}

function lineageNode(ctx, node, [x, y], here) {
  const { row } = node;
  const name = row ? row.label.name : node.folder;
  const extended = row?.lineage?.extended || [];
  const sizes = extended.length ? `extended ${[...extended, row.total].map((size) => size ?? "all").join(" → ")}` : "";
  const best = typeof row?.best?.value === "number" ? `${short(row.label.metric, 18)} ${number(row.best.value)}` : "";
  const small = row ? [row.state, sizes || best].filter(Boolean).join(" · ") : "not in this directory";
  const open = () => ctx.open(node.id);
  return s("g", { class: `node${row ? "" : " outside"}${here ? " here" : ""}`, transform: `translate(${x} ${y})`, ...(row ? { tabindex: "0", role: "button", "aria-label": `${name}, ${small}`, onclick: open, onkeydown: (event) => { if (event.key === "Enter") open(); } } : {}) },
    s("title", {}, [name, small, sizes, best].filter(Boolean).join("\n")),
    s("rect", { class: "box", width: NODE.width, height: NODE.height, rx: 8 }),
    row && s("rect", { class: "mark", width: 4, height: NODE.height - 14, x: 6, y: 7, rx: 2, fill: `var(--${STATUSES.includes(runStatus(row)) ? runStatus(row) : "queued"})` }),
    s("text", { x: 17, y: 19 }, row ? fitted(name, NODE.width - 26, "600 12.5px") : short(`…${name.slice(-24)}`, 26)),
    s("text", { class: "tick", x: 17, y: 35 }, fitted(small, NODE.width - 24, "11px")));
}
