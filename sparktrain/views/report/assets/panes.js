// The pane of one trial: parameters, metrics, curve, failures, restarts, and in a served page its log and its end.

class TrialPane {
  constructor(ctx) {
    this.ctx = ctx;
    this.trial = null;
    this.body = h("div", { class: "pane-body" });
    this.element = h("dialog", { class: "pane", "aria-label": "Trial", onclose: () => this.closed(), onclick: (event) => { if (event.target === this.element) this.element.close(); } },
      h("form", { method: "dialog" }, h("button", { class: "quiet close", "aria-label": "Close" }, "✕")), this.body);
  }

  open(id) {
    const row = this.ctx.row(id);
    if (!row) return;
    this.trial = id;
    this.back = document.activeElement;
    hideTip();
    if (!this.element.open) this.element.showModal();
    this.element.scrollTop = 0;
    this.draw();
    if (this.ctx.doc.live) this.ctx.live.follow(id, this.log);
  }

  closed() {
    if (this.ctx.live) this.ctx.live.unfollow();
    this.trial = null;
    if (this.back && this.back.focus) this.back.focus();
  }

  draw() {
    const row = this.ctx.row(this.trial);
    if (!row) return;
    const { headline, live } = this.ctx.doc;
    const { details } = row;
    const failure = this.ctx.doc.views.failures.kinds?.find((kind) => kind.trials.includes(row.id));
    const facts = [["took", duration(row.seconds)], ["started", moment(row.started)], ["ended", moment(row.ended)], ["host", details.host], ["generation", details.generations], ["last step", row.step], ["case", details.case], ["repeat", details.repeat], ["fold", details.fold]];
    this.log = this.log || new LogView();
    this.body.replaceChildren(...[
      h("h2", {}, `Trial ${row.id} `, chip(row.status), row.place === 0 ? chip("best") : null),
      row.value !== undefined && h("p", { class: "big" }, number(row.value), h("small", {}, ` ${short(headline.run.metric || "", 60)}`)),
      details.error && h("p", { class: "warn" }, details.error),
      details.pruned && h("p", { class: "muted" }, details.pruned),
      ...(details.notices || []).map((notice) => h("p", { class: "muted" }, notice)),
      details.tags && h("p", {}, details.tags.map((tag) => h("span", { class: "chip" }, tag))),
      ...(details.notes || []).map((note) => h("p", { class: "note" }, note)),
      details.unsaved && h("p", { class: "muted" }, details.unsaved),
      this.part("Parameters", Object.entries(row.params || {})),
      this.part("Metrics", Object.entries(row.metrics || {})),
      this.curve(row),
      this.part("Facts", facts.filter(([, value]) => value !== undefined && value !== null && value !== "–")),
      details.restarts && h("section", {}, h("h3", {}, "Restarts"), h("ol", { class: "plain" }, details.restarts.map((each) => h("li", {}, h("b", {}, each.kind), ` ${each.cause}`, h("div", { class: "muted" }, restartText(each)))))),
      row.step_times && h("section", {}, h("h3", {}, "Steps"), row.step_times.map((line) => h("p", {}, line))),
      failure && failure.first === row.id && texts(failure),
      live && h("section", {}, h("h3", {}, "Log"), this.log.element),
      h("section", {}, h("h3", {}, "On the command line"), headline.run.again && command(headline.run.again + row.id), details.generations > 0 && command(headline.run.logs + row.id)),
      live && live.rights.includes("stop") && ["running", "queued", "paused"].includes(row.status) && h("button", { type: "button", class: "danger", onclick: () => this.ctx.live.stop(row.id) }, "Stop this trial"),
    ].filter(Boolean));
  }

  part(title, entries) {
    return entries.length ? h("section", {}, h("h3", {}, title), pairs(entries)) : null;
  }

  curve(row) {
    for (const curves of this.ctx.doc.views.curves || []) {
      const line = curves.lines.find((each) => each.trial === row.id);
      if (!line || line.values.filter((value) => value !== null).length < 2) continue;
      const box = h("section", {}, h("h3", {}, short(curves.metric, 60)));
      const wide = Math.min(560, innerWidth - 60);
      const width = Math.max(240, Math.min(wide, (this.element.clientWidth || wide) - 56));
      const colour = row.place === 0 ? css("--best") : statusColour(row.status);
      uplot(width, 180, { x: "step", y: ownAxis(curves, line.values), cursor: { show: false }, series: [{}, { stroke: colour, width: 2, spanGaps: true, points: { show: false } }] }, [curves.steps, line.values], box);
      return box;
    }
    return null;
  }
}

// The axis of all curves; that of the curve alone where it ends beyond it.
function ownAxis(curves, values) {
  const known = values.filter((value) => value !== null);
  if (!beyond(curves.y, known[known.length - 1])) {
    const inside = known.filter((value) => !beyond(curves.y, value));
    return { ...curves.y, low: Math.min(...inside), high: Math.max(...inside) };
  }
  return { low: Math.min(...known), high: Math.max(...known) };
}

function restartText(each) {
  if (each.healed) {
    const steps = each.steps_lost ? count(each.steps_lost, "step") : "no step";
    const smaller = each.members ? ` and continue with ${each.members} of ${count(each.full_size, "member")}` : "";
    const kept = `the others kept their state${smaller}`;
    return `${each.host || "unknown host"} · ${kept}; ${duration(each.seconds)}, ${steps} repeated`;
  }
  const from = each.step === undefined || each.step === null ? "from the start" : `from step ${each.step}`;
  const cost = each.steps_lost ? `, ${count(each.steps_lost, "step")} repeated` : "";
  return `${each.host || "unknown host"} · back after ${duration(each.seconds)}, ${from}${cost}`;
}

function texts(failure) {
  return h("section", {},
    failure.log_tail && [h("h3", {}, "Last lines of the log"), h("pre", { tabindex: "0" }, failure.log_tail.join("\n"))],
    failure.traceback && [h("h3", {}, "Traceback"), h("pre", { tabindex: "0" }, failure.traceback)]);
}
