// The pane of one run among several: what it is, its best trial, where it comes from, and the way to its own page.

// As a shell reads it.
function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}

class RunPane {
  constructor(ctx) {
    this.ctx = ctx;
    this.run = null;
    this.body = h("div", { class: "pane-body" });
    this.element = h("dialog", { class: "pane", "aria-label": "Run", onclose: () => this.closed(), onclick: (event) => { if (event.target === this.element) this.element.close(); } },
      h("form", { method: "dialog" }, h("button", { class: "quiet close", "aria-label": "Close" }, "✕")), this.body);
  }

  open(id) {
    if (!this.ctx.row(id)) return;
    this.run = id;
    if (!this.element.open) {
      this.back = document.activeElement;
      this.element.showModal();
    }
    this.element.scrollTop = 0;
    hideTip();
    this.drawn = null;
    this.refresh();
  }

  closed() {
    this.run = null;
    if (this.back && this.back.focus) this.back.focus();
  }

  refresh() {
    const row = this.run === null ? null : this.ctx.row(this.run);
    if (!row || row === this.drawn) return;
    this.drawn = row;
    const { label, best, owner, clock, slots } = row;
    const counts = Object.entries(row.counts || {}).map(([status, many]) => `${many} ${status}`).join(", ");
    const facts = [
      ["kind", label.kind], ["function", label.function], ["trials", counts && (row.total ? `${counts}, of ${row.total}` : counts)],
      ["owner", owner?.user], ["host", owner?.host], ["sparktrain", owner?.sparktrain], ["started", moment(clock?.started)],
      ["duration", row.state === "unreadable" ? "" : duration(runSeconds(row))], ["slots of a trial", slots?.per_trial ?? 1], ["slots in use", slots?.busy],
      ["restarts", row.restarts], ["directory", label.directory],
    ].filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== "–");
    const part = this.ctx.lineage.partOf(row.id);
    const chosen = this.ctx.chosen.has(row.id);
    this.body.replaceChildren(...[
      h("h2", {}, short(label.name, 120), " ", chip(runStatus(row), row.state)),
      row.problem && h("p", { class: row.state === "unreadable" ? "warn" : "note" }, row.problem),
      h("p", { class: "actions" },
        this.ctx.doc.live && h("a", { class: "button", href: `runs/${encodeURIComponent(row.id)}/` }, "Open its page"),
        row.state !== "unreadable" && h("button", { type: "button", onclick: () => { this.element.close(); this.ctx.compare([row.id]); } }, "Curves and facts"),
        h("button", { type: "button", onclick: () => { this.ctx.choose(row.id); this.drawn = null; this.refresh(); } }, chosen ? "Do not compare" : "Choose to compare")),
      best && typeof best.value === "number" && h("p", { class: "big" }, number(best.value), h("small", {}, ` ${short(label.metric || "", 60)} of trial ${best.trial}`)),
      this.part("Parameters of the best trial", best?.params),
      this.part("Metrics of the best trial", best?.metrics),
      h("section", {}, h("h3", {}, "Facts"), pairs(facts)),
      part && h("section", {}, h("h3", {}, "Lineage"), lineageGraph(this.ctx, part, row.id)),
      h("section", {}, h("h3", {}, "On the command line"), ["status", "page", "report"].map((word) => command(`sparktrain ${word} ${quoted(label.directory)}`))),
    ].filter(Boolean));
  }

  part(title, of) {
    const entries = Object.entries(of || {});
    return entries.length ? h("section", {}, h("h3", {}, title), pairs(entries)) : null;
  }
}
