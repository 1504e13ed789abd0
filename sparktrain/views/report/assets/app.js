// Starts the page: from the document in the file, or from the server, which also sends what changes.

class Page {
  constructor(doc) {
    this.doc = doc;
    this.index();
    this.pane = new TrialPane(this);
    this.live = doc.live ? new LiveLink(this) : null;
    this.bodies = new Map();
    this.stale = new Set();
  }

  index() {
    this.places = new Map(this.doc.trials.map((row, at) => [row.id, at]));
  }

  row(id) {
    return this.doc.trials[this.places.get(id)];
  }

  open(id) {
    this.pane.open(id);
  }

  draw() {
    document.title = `${this.doc.headline.run.name} – sparktrain`;
    this.main = h("main", {});
    this.header = h("div", {});
    this.links = h("nav", { "aria-label": "Sections" });
    document.getElementById("app").replaceChildren(this.links, this.main, this.pane.element, tip);
    if (this.doc.live && this.doc.live.all_runs) this.links.append(h("a", { href: this.doc.live.all_runs }, "← All runs"));
    this.main.append(this.header);
    this.drawHeader();
    this.queue = [...SECTIONS];
    this.next();
  }

  drawHeader() {
    this.header.replaceChildren(headerOf(this));
    if (this.live && this.live.text) this.live.say(this.live.text);
  }

  // One section in each turn of the event loop: the first ones are on the screen at once.
  next() {
    const section = this.queue.shift();
    if (!section) {
      document.body.dataset.ready = "yes";
      return;
    }
    this.section(section);
    setTimeout(() => this.next(), 0);
  }

  section(section) {
    const hidden = section.skip && section.skip(this.doc);
    let found = this.bodies.get(section.id);
    if (!found) {
      const body = h("div", { class: "card-body" });
      const card = h("section", { class: "card", id: section.id }, h("h2", {}, section.title), body);
      const link = h("a", { href: `#${section.id}` }, section.title);
      found = { body, card, link };
      this.bodies.set(section.id, found);
      this.main.append(card);
      this.links.append(link);
    }
    found.card.hidden = found.link.hidden = Boolean(hidden);
    if (hidden) return;
    if (found.drawn && section.keep) {
      section.keep(this);
      return;
    }
    try {
      found.body.replaceChildren(section.draw(this, Math.max(260, found.body.clientWidth)));
      found.drawn = true;
    } catch (error) {
      found.body.replaceChildren(h("p", { class: "warn" }, `this part cannot be drawn: ${error.message}`));
      console.error(error);
    }
  }

  again(keys) {
    for (const section of SECTIONS) {
      if (keys === null ? !section.keep : section.needs.some((key) => keys.has(key))) this.section(section);
    }
  }

  merge(event) {
    const keys = new Set();
    if (event.headline) {
      this.doc.headline = event.headline;
      keys.add("headline");
    }
    for (const row of event.trials || []) {
      if (!this.places.has(row.id)) this.places.set(row.id, this.doc.trials.length);
      this.doc.trials[this.places.get(row.id)] = row;
      keys.add("trials");
    }
    for (const [name, view] of Object.entries(event.views || {})) {
      this.doc.views[name] = view;
      keys.add(name);
    }
    for (const key of keys) this.stale.add(key);
    if (!this.soon) this.soon = setTimeout(() => this.settle(), 250);
  }

  // Draws what has changed since the last time, once for many events.
  settle() {
    this.soon = 0;
    const keys = this.stale;
    this.stale = new Set();
    if (keys.has("headline") || keys.has("cost")) this.drawHeader();
    if (!this.queue.length) this.again(keys);
    if (this.pane.trial !== null && keys.has("trials")) this.pane.draw();
  }
}

function begin(doc) {
  if (doc.kind === "runs") return beginRuns(doc);
  if (doc.kind === "comparison") {
    comparisonPage(doc);
    document.title = "Comparison – sparktrain";
    document.body.dataset.ready = "yes";
    return;
  }
  const page = new Page(doc);
  page.draw();
  if (page.live) page.live.start();
  redrawWithWindow(() => { if (!page.queue.length) { page.drawHeader(); page.again(null); } });
}

async function load() {
  const inline = document.getElementById("document");
  if (inline) return begin(JSON.parse(inline.textContent));
  const place = document.getElementById("app");
  place.textContent = "Loading …";
  try {
    const answer = await fetch("state");
    if (!answer.ok) throw new Error(answer.status === 403 || answer.status === 401 ? "the link is no longer valid" : `status ${answer.status}`);
    const doc = await answer.json();
    begin(doc);
  } catch (error) {
    place.textContent = `The run cannot be loaded: ${error.message}. Reload the page to try again.`;
  }
}

load();
