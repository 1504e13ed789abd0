// The log of a trial in its pane: the end first, earlier parts on request, and never more than a browser shows at ease.

const LOG_TAIL = 256 * 1024;
const MOST_LOG = 2 * 1024 * 1024; // while the end is in sight, what is before goes beyond this
const MOST_EARLIER = 8 * 1024 * 1024;

class LogView {
  constructor() {
    this.text = h("pre", { class: "log", tabindex: "0", "aria-label": "Log" });
    this.more = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.earlier() });
    this.element = h("div", {}, this.more, this.text);
    this.clear(null);
  }

  clear(trial) {
    this.trial = trial;
    this.text.textContent = "";
    this.first = 0; // the first byte that is shown
    this.next = null; // the byte after the last one; null before the first answer
    this.generation = null;
    this.pieces = []; // the shown parts: text nodes with their sizes in bytes
    this.more.hidden = true;
  }

  // Fetches what is new, and at first the end of the log.
  async look() {
    const { trial, next } = this;
    const answer = await fetch(`logs/${trial}?${next === null ? `tail=${LOG_TAIL}` : `offset=${next}`}`);
    const text = await answer.text();
    if (this.trial !== trial || this.next !== next) return;
    if (!answer.ok) {
      if (next === null) this.text.textContent = text;
      return;
    }
    const [start, end, generation] = ["X-Start-Offset", "X-Next-Offset", "X-Generation"].map((name) => Number(answer.headers.get(name) || 0));
    if (!end) this.text.textContent = `trial ${trial} has no log yet`;
    if (!end) return;
    if (next === null) this.begin(start, generation);
    else if (start !== next || generation !== this.generation) return this.clear(trial); // of a newer generation: its end comes next
    this.next = end;
    if (text) this.add(text, end - start);
    this.label();
  }

  begin(start, generation) {
    this.text.textContent = "";
    this.first = start;
    this.generation = generation;
  }

  get size() {
    return this.pieces.reduce((total, piece) => total + piece.bytes, 0);
  }

  add(text, bytes) {
    const down = this.text.scrollTop + this.text.clientHeight >= this.text.scrollHeight - 8;
    const node = document.createTextNode(text);
    this.text.append(node);
    this.pieces.push({ node, bytes });
    if (!down) return;
    while (this.size > MOST_LOG && this.pieces.length > 1) {
      const piece = this.pieces.shift();
      piece.node.remove();
      this.first += piece.bytes;
    }
    this.text.scrollTop = this.text.scrollHeight;
  }

  async earlier() {
    const { trial, first } = this;
    this.more.disabled = true;
    try {
      const answer = await fetch(`logs/${trial}?before=${first}&tail=${LOG_TAIL}`);
      const text = await answer.text();
      if (answer.ok && this.trial === trial && this.first === first) this.prepend(text, Number(answer.headers.get("X-Start-Offset") || 0));
    } catch {
      // the button stays
    } finally {
      this.more.disabled = false;
      this.label();
    }
  }

  prepend(text, start) {
    const node = document.createTextNode(text);
    const high = this.text.scrollHeight;
    this.text.prepend(node);
    this.pieces.unshift({ node, bytes: this.first - start });
    this.first = start;
    this.text.scrollTop += this.text.scrollHeight - high;
  }

  label() {
    const full = this.size >= MOST_EARLIER;
    this.more.hidden = !this.first;
    this.more.disabled = full;
    this.more.textContent = full ? `${bytesText(this.first)} before: the command below prints them` : `Show earlier lines (${bytesText(this.first)} before)`;
  }
}

function bytesText(bytes) {
  if (bytes < 1024) return `${bytes} bytes`;
  return bytes < 1024 ** 2 ? `${Math.round(bytes / 1024)} KiB` : `${(bytes / 1024 ** 2).toFixed(1)} MiB`;
}
