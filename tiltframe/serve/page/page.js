// The page: each view is an address, and each change of the view is a new address.

import { readView, textOf, withoutPanel, withPanel, withShared } from "./address.js";
import { barOf, timeToolsOf } from "./bar.js";
import { watchChanges } from "./changes.js";
import { overviewOf, summaryOf } from "./overview.js";
import { Panel } from "./panel.js";
import { fetchJSON, Unauthorized } from "./server.js";
import { timeText } from "./times.js";
import { html, render } from "./vendor/lit-html.js";

const KEYS = { "+": "in", "=": "in", "-": "out", ArrowLeft: "earlier", ArrowRight: "later", 0: "all" };
const SHIFTS = { earlier: [-0.5, -0.5], later: [0.5, 0.5], in: [0.25, -0.25], out: [-0.5, 0.5] }; // of the length of the range

class Page {
  view = readView();
  stores = [];
  panels = [];
  summaries = [];
  needsToken = false;
  error = null;
  message = "";
  isBusy = true;
  asked = 0;

  go(view) {
    history.pushState(null, "", textOf(view));
    return this.load();
  }

  // Write a view whose answers are on the page already into the address.
  rewrite(view) {
    this.view = view;
    history.replaceState(null, "", textOf(view));
    this.render();
  }

  changeShared = (changes) => this.go(withShared(this.view, changes));

  changePanel = (index, changes, isNew) => this.go(withPanel(isNew ? withPanel(this.view, index, Object.fromEntries(Object.keys(this.view.panels[index]).map((word) => [word, null]))) : this.view, index, changes));

  removePanel = (index) => this.go(withoutPanel(this.view, index));

  addPanel() {
    const { store, by, measure } = this.view.panels.at(-1);
    return this.go(withPanel(this.view, this.view.panels.length, { store: store ?? this.stores[0], measure, by }));
  }

  // Show what the address says.
  async load() {
    const asked = ++this.asked;
    this.view = readView();
    this.message = "";
    this.isBusy = true;
    this.panels.length = Math.min(this.panels.length, this.view.panels.length);
    for (let i = this.panels.length; i < this.view.panels.length; i++) this.panels.push(new Panel(i, this));
    for (const panel of this.panels) panel.isBusy = true;
    this.render();
    try {
      if (!this.stores.length) this.stores = (await fetchJSON("/v1/stores")).stores.map((store) => store.name);
      this.error = null;
      this.needsToken = false;
      await (this.panels.length ? Promise.all(this.panels.map((panel) => panel.load(this.view, this.stores))) : this.loadOverview(asked));
    } catch (error) {
      if (error instanceof Unauthorized) this.askForToken();
      else this.error = error;
    }
    if (asked !== this.asked) return;
    this.isBusy = false;
    this.render();
  }

  async loadOverview(asked) {
    const earlier = new Map(this.summaries.map((summary) => [summary.name, summary]));
    this.summaries = this.stores.map((name) => earlier.get(name) ?? { name });
    this.render();
    for (const [i, name] of this.stores.entries()) { // one after the other: the server computes few queries at once
      const summary = await summaryOf(name, this.view);
      if (asked !== this.asked) return;
      this.summaries[i] = summary;
      this.render();
    }
  }

  get range() {
    return this.panels.find((panel) => panel.shown)?.shown.range ?? this.summaries.find((summary) => summary.range)?.range;
  }

  // The description of the store that all panels show, or of the only store of the overview.
  get onlyStore() {
    const stores = (this.panels.length ? this.panels.map((panel) => panel.question) : this.summaries).map((each) => each?.store);
    return stores.every((store) => store && store.name === stores[0].name) ? stores[0] : undefined;
  }

  move(way) {
    if (way === "all") return this.changeShared({ range: "all", from: null, to: null });
    if (!this.range) return undefined;
    const { from, to } = this.range;
    const [before, after] = SHIFTS[way].map((share) => share * (to - from));
    return this.choose(from + before, to + after);
  }

  choose(from, to) {
    if (to - from >= 2) this.changeShared({ range: null, from: timeText(from), to: timeText(to) });
  }

  moveByKey(event) {
    if (!(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.move(KEYS[event.key]);
  }

  get isLive() {
    return this.view.live !== "off";
  }

  toggleLive() {
    this.rewrite(withShared(this.view, { live: this.isLive ? "off" : null }));
  }

  // Copy the address of this view with the range as times, which the others see as well later on.
  async share() {
    const range = this.range;
    const times = range ? { range: null, from: timeText(range.from), to: timeText(range.to) } : {};
    const address = new URL(textOf(withShared(this.view, times)), location.href).href;
    try {
      await navigator.clipboard.writeText(address);
      this.say("The link is copied.");
    } catch {
      history.replaceState(null, "", address);
      this.say("The address of this page is the link.");
    }
  }

  say(message) {
    this.message = message;
    this.render();
  }

  askForToken() {
    this.needsToken = true;
    this.render();
    document.getElementById("token")?.focus();
  }

  keepToken(event) {
    event.preventDefault();
    sessionStorage.setItem("token", document.getElementById("token").value.trim());
    this.load();
  }

  render() {
    const { view, isLive, message, panels } = this;
    const [first] = panels;
    render(html`${barOf({ view, isLive, message, page: this })}
      <main>
        ${this.needsToken ? html`<form id="token-form" @submit=${(event) => this.keepToken(event)}><label>This server asks for its token<input id="token" type="password" autocomplete="off" required></label><button>Go on</button></form>` : ""}
        ${this.error ? html`<div class="state"><p class="wrong">${this.error.message}</p><button type="button" @click=${() => this.load()}>Try again</button></div>` : ""}
        ${first ? html`${timeToolsOf({ view, shown: first.shown, page: this })}<div id="panels">${panels.map((panel) => panel.template(view, this.stores))}</div>
          <button type="button" class="add" @click=${() => this.addPanel()}>Add a panel</button>`
          : html`<div id="overview" aria-busy=${this.isBusy ? "true" : "false"}>${overviewOf(this.summaries, view, () => this.load())}</div>`}
      </main>`, document.body);
    setValues();
    const question = first?.question;
    document.title = question ? `${question.measure.name} · ${question.store.name} · tiltframe` : "tiltframe";
  }
}

// Set the values of selects and inputs, whose options exist only now; the control in use is left alone.
function setValues() {
  for (const control of document.querySelectorAll("[data-value]")) {
    if (control instanceof HTMLInputElement && control === document.activeElement) continue;
    if (control.value !== control.dataset.value) control.value = control.dataset.value;
  }
}

const page = new Page();
document.body.replaceChildren();
page.load();
addEventListener("popstate", () => page.load());
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a.card, a.brand, a.overview");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  history.pushState(null, "", link.href);
  page.load();
  scrollTo(0, 0);
});
const redraw = () => page.panels.forEach((panel) => panel.draw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(redraw, 150);
});
watchChanges({ isWanted: () => page.isLive && !page.needsToken, shownStore: () => page.onlyStore, onChange: () => page.load() });
