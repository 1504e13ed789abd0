// A served page: a stream of changes (or a long poll where proxies hold the stream back), logs, and stops.

const SILENT_MS = 5000;
const POLL_S = 20;
const RETRY_MS = 2000;

class LiveLink {
  constructor(ctx) {
    this.ctx = ctx;
    this.last = 0;
    this.heard = false;
  }

  start() {
    this.source = new EventSource(`events?since=${this.last}`);
    this.source.onmessage = (event) => { this.heard = true; this.merge(JSON.parse(event.data)); };
    this.source.addEventListener("heartbeat", () => { this.heard = true; });
    this.source.onopen = () => this.say("live");
    setTimeout(() => { if (!this.heard) this.poll(); }, SILENT_MS); // a proxy may hold back the head of the answer, too
    this.source.onerror = () => {
      this.say("connection lost, trying again");
      if (this.source.readyState === EventSource.CLOSED) this.poll();
    };
  }

  async poll() {
    if (this.polling) return;
    this.polling = true;
    this.source.close();
    for (;;) {
      try {
        const answer = await fetch(`events?since=${this.last}&wait=${POLL_S}`);
        if (answer.status === 401 || answer.status === 403) return this.say("no longer allowed: open the link again");
        if (!answer.ok) throw new Error(String(answer.status));
        for (const event of await answer.json()) this.merge(event);
        this.say("live");
      } catch {
        this.say("connection lost, trying again");
        await new Promise((done) => setTimeout(done, RETRY_MS));
      }
    }
  }

  say(text) {
    this.text = text;
    const place = document.getElementById("link");
    if (place) place.textContent = text;
  }

  merge(event) {
    if (event.id !== undefined) this.last = Math.max(this.last, event.id);
    this.ctx.merge(event);
  }

  async follow(trial, log) {
    this.unfollow();
    const mine = { trial };
    this.following = mine;
    log.clear(trial);
    while (this.following === mine) {
      try {
        await log.look();
      } catch {
        // the next round tries again
      }
      await new Promise((done) => setTimeout(done, RETRY_MS));
    }
  }

  unfollow() {
    this.following = null;
  }

  async stop(trial) {
    const what = trial === null ? "the run" : `trial ${trial}`;
    if (!confirm(`Stop ${what}?`)) return;
    try {
      const answer = await fetch(trial === null ? "stop" : `trials/${trial}/stop`, { method: "POST", headers: { "X-Sparktrain-Token": this.ctx.doc.live.csrf } });
      this.say(answer.ok ? `${what} was asked to stop` : `${what} was not stopped: ${await answer.text()}`);
    } catch {
      this.say(`${what} was not stopped: the server does not answer`);
    }
  }
}
