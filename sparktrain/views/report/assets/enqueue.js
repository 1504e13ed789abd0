// A reader of the live page adds a trial to the running sweep: parameters as text, which the server checks.

async function addTrial(ctx) {
  const { headline, live } = ctx.doc;
  const text = (value) => (typeof value === "string" && /[^\w.+-]/.test(value) ? `'${value}'` : typeof value === "object" ? JSON.stringify(value) : String(value));
  const example = Object.entries((headline.best && headline.best.params) || {}).map(([name, value]) => `${name}=${text(value)}`).join(" ");
  const given = prompt("Parameters of a trial that starts with the next free slot:", example);
  if (!given) return;
  try {
    const answer = await fetch("enqueue", { method: "POST", body: given, headers: { "Content-Type": "text/plain; charset=utf-8", "X-Sparktrain-Token": live.csrf } });
    ctx.live.say(answer.ok ? "the trial was added" : `no trial was added: ${await answer.text()}`);
  } catch {
    ctx.live.say("no trial was added: the server does not answer");
  }
}

function addButton(ctx) {
  const { headline, live } = ctx.doc;
  const may = live && live.rights.includes("stop") && headline.state === "running" && headline.run.kind === "sweep";
  return may && h("button", { type: "button", class: "add", onclick: () => addTrial(ctx) }, "Add a trial");
}
