// A panel: one metric, its chart, legend, numbers and queries.

import { withPanel } from "./address.js";
import { answersOf, MOST_LINES, TooManyLines } from "./answers.js";
import { drawHeatMap, drawLines } from "./chart.js";
import { commandOf, curlOf, pythonOf } from "./copies.js";
import { heatOf, shadesOf } from "./heat.js";
import { legendOf, showAtCursor } from "./legend.js";
import { optionsOf } from "./options.js";
import { promQLOf } from "./promql.js";
import { named, questionOf } from "./question.js";
import { rangeOfStore, rangeOfView } from "./ranges.js";
import { keyValues, storeOf, Unauthorized } from "./server.js";
import { seriesOf, stretchesAbove } from "./series.js";
import { tableOf } from "./table.js";
import { duration, withWrittenTimes, written } from "./times.js";
import { html } from "./vendor/lit-html.js";

const OTHER_LINES = ["store", "measure", "column", "as", "by"]; // a change of these words gives lines with other names

// Return the text of a line in an address.
const placeOfLine = (line) => JSON.stringify([...line.values, line.name]);

export class Panel {
  constructor(index, page) {
    Object.assign(this, { index, page, shown: null, error: null, isBusy: true, asked: 0, keyChoices: new Map(), message: "" });
  }

  // The words of this panel in the address.
  get words() {
    return this.page.view.panels[this.index] ?? {};
  }

  // The indexes of the lines that the address hides.
  get hidden() {
    const { hide = [] } = this.words;
    return new Set(this.shown.series.lines.flatMap((line, i) => (hide.includes(placeOfLine(line)) ? [i] : [])));
  }

  // The threshold, or null if there is none.
  get threshold() {
    const above = Number(this.words.above);
    return this.words.above && Number.isFinite(above) ? above : null;
  }

  id = (name) => (this.index ? `${name}-${this.index + 1}` : name);

  // Ask for what the address says, and draw it; answers to earlier questions are dropped.
  async load(view, stores) {
    const asked = ++this.asked;
    this.isBusy = true;
    try {
      const words = view.panels[this.index];
      const name = words.store ? named(stores.map((each) => ({ name: each })), words.store, "store").name : stores[0];
      const store = await storeOf(name);
      const question = questionOf(store, words);
      if (asked !== this.asked) return;
      this.question = question;
      const range = await rangeOfView(view, store);
      const width = document.getElementById(this.id("chart"))?.clientWidth || 900;
      const answers = await answersOf(question, { range, compare: view.compare, width });
      if (asked !== this.asked) return;
      this.show(question, range, answers);
    } catch (error) {
      if (asked !== this.asked) return;
      Object.assign(this, { error, shown: null });
      if (error instanceof Unauthorized) this.page.askForToken();
    }
    this.isBusy = false;
    this.page.render();
    this.draw();
  }

  // Show a sentence in place of what cannot be drawn.
  fail(error) {
    console.warn(error);
    Object.assign(this, { error, shown: null, question: null, isBusy: false });
  }

  show(question, range, answers) {
    const heat = question.isHeat && answers.rows.length ? heatOf(answers.histograms) : null;
    const series = heat ? countsOf(question, answers.rows, heat) : seriesOf(question, answers);
    Object.assign(this, { error: null, message: "", shown: { question, range, answers, heat, series } });
  }

  draw() {
    this.plot?.destroy();
    this.plot = null;
    try {
      this.plot = this.drawn();
    } catch (error) {
      this.fail(error);
      this.page.render();
    }
  }

  // Draw the chart, and return it, or null if there is nothing to draw.
  drawn() {
    const place = document.getElementById(this.id("chart"));
    if (!place || !this.shown || !this.shown.answers.rows.length || !this.shown.question.isNumber) return null;
    const { question, range, answers, heat, series } = this.shown;
    const shared = { question, range, onSelect: (from, to) => this.page.choose(from, to), onCursor: (u) => showAtCursor(place.closest(".panel"), u) };
    if (heat) return drawHeatMap(place, { ...shared, rows: answers.rows, heat });
    return drawLines(place, { ...shared, series, threshold: this.threshold, hidden: this.hidden });
  }

  // Hide a line, or show it again.
  toggle(index) {
    const place = placeOfLine(this.shown.series.lines[index]);
    const hide = (this.words.hide ?? []).filter((each) => each !== place);
    this.rewrite({ hide: this.hidden.has(index) ? hide : [...hide, place] });
  }

  // Change words of the address that need no new answers.
  rewrite(changes) {
    this.page.rewrite(withPanel(this.page.view, this.index, changes));
    this.draw();
  }

  change(changes, isNew = false) {
    const hasOtherLines = OTHER_LINES.some((word) => word in changes);
    this.page.changePanel(this.index, hasOtherLines ? { ...changes, hide: null } : changes, isNew);
  }

  async openFilters() {
    try {
      for (const key of this.question.store.keys) {
        if (!this.keyChoices.has(key.name)) this.keyChoices.set(key.name, await keyValues(this.question.store, key));
      }
      this.page.render();
    } catch (error) {
      this.page.say(error.message);
    }
  }

  only(line) {
    const filters = this.question.by.map((key, i) => [`key.${key}`, JSON.stringify(line.values[i])]);
    this.change({ ...Object.fromEntries(filters), by: [] });
  }

  async copy(name, button) {
    const text = document.getElementById(this.id(name));
    getSelection().selectAllChildren(text); // can be copied by hand if the browser refuses
    try {
      await navigator.clipboard.writeText(text.textContent);
      this.page.say(`Copied: ${button}.`);
    } catch {
      this.page.say("Selected; copy it by Ctrl+C.");
    }
  }

  template(view, stores) {
    try {
      return this.section(view, stores);
    } catch (error) {
      this.fail(error);
      return this.section(view, stores);
    }
  }

  section(view, stores) {
    const { question, shown } = this;
    const title = question ? `${question.name === question.measure.name || question.isBand || question.isHeat ? question.measure.name : question.name}` : "…";
    return html`<section class="panel" aria-label=${`Panel ${this.index + 1}: ${title}`}>
      <div class="head"><h2>${title}${question?.isRate ? " per second" : ""}</h2><span class="quiet">${question ? question.store.name : ""}</span>
        ${view.panels.length > 1 ? html`<button type="button" class="quiet" aria-label=${`Remove panel ${this.index + 1}`} @click=${() => this.page.removePanel(this.index)}>Remove</button>` : ""}</div>
      ${question ? html`<div class="options">${optionsOf({ question, stores, id: this.id, keyChoices: this.keyChoices, above: this.words.above ?? "", onOpenFilters: () => this.openFilters(), onThreshold: (above) => this.rewrite({ above }), onChange: (changes, isNew) => this.change(changes, isNew) })}</div>` : ""}
      <div class="results ${this.isBusy ? "busy" : ""}" id=${this.id("results")} aria-busy=${this.isBusy ? "true" : "false"}>
        <div class="progress" aria-hidden="true"></div>
        <div id=${this.id("chart")} class="chart ${shown?.answers.rows.length && shown.question.isNumber ? "" : "blank"}" tabindex="0" role="img" aria-label=${this.heard()} @keydown=${(event) => this.page.moveByKey(event)} @dblclick=${() => this.page.move("out")}></div>
        ${this.state()}
        ${shown?.heat ? html`<p id=${this.id("colours")} class="shades">Rows:${shadesOf(shown.heat).map(({ opacity, text }) => html`<span><i .style=${`opacity: ${opacity}`}></i>${text}</span>`)}</p>` : ""}
        ${shown && !shown.heat && shown.answers.rows.length && shown.question.isNumber ? html`<div class="lines" tabindex="0" role="group" aria-label="Lines">${legendOf({ question: shown.question, series: shown.series, compared: shown.answers.compared, hidden: this.hidden, onToggle: (i) => this.toggle(i), onOnly: (line) => this.only(line) })}</div>` : ""}
        <p id=${this.id("status")} role="status" class="status ${this.error && !(this.error instanceof TooManyLines) ? "wrong" : ""}">${this.sentences().join(" ")}</p>
        ${this.stretches?.length ? html`<button type="button" class="began" @click=${() => this.showBeginning()}>Show when it began</button>` : ""}
        ${shown ? html`${this.numbers()}${this.copies()}` : ""}
      </div>
    </section>`;
  }

  // The message in place of a chart: loading, an error, too many lines, or no data.
  state() {
    if (this.error instanceof TooManyLines) {
      return html`<div class="state"><p>${this.error.message}</p><button type="button" @click=${() => this.change({ lines: null })}>Draw the greatest 10</button>
        <button type="button" @click=${() => this.change({ lines: String(MOST_LINES) })}>Draw up to ${MOST_LINES.toLocaleString("en")}</button></div>`;
    }
    if (this.error) return html`<div class="state"><p>Nothing can be drawn.</p><button type="button" @click=${() => this.page.load()}>Try again</button> <a class="overview" href="/">All stores</a></div>`;
    if (!this.shown) return html`<div class="state loading"><p>Loading …</p></div>`;
    if (!this.shown.answers.rows.length) return html`<div class="state"><p>No data in this range.</p><button type="button" @click=${() => this.page.changeShared({ range: null, from: null, to: null })}>Show the last day with data</button></div>`;
    return "";
  }

  // The stretches above the threshold, or null if there is no threshold.
  get stretches() {
    if (!this.shown || this.shown.heat || this.threshold === null) return null;
    return stretchesAbove(this.shown.series, this.threshold);
  }

  // Show finer windows around the first one above the threshold.
  showBeginning() {
    const [{ at, length }] = this.stretches;
    this.page.choose(at - length, at + 2 * length);
  }

  sentences() {
    if (this.error instanceof TooManyLines) return ["Choose how many lines to draw."];
    if (this.error) return [this.error.message];
    if (!this.shown) return [];
    const { question, range, answers, heat } = this.shown;
    const zone = question.store.timezone;
    const { compared } = answers;
    return [
      windowsSentence(question.store, answers),
      heat ? "The stronger the colour, the more rows in that range of values; a bucket of the sketch counts in the range that has its middle." : null,
      this.stretches ? thresholdSentence(this.stretches, this.threshold, zone) : null,
      range.note,
      ...answers.answer.warnings.map((warning) => withWrittenTimes(warning, zone)),
      compared ? `Dashed: the ${compared.name}, ${compared.rows.length ? `${duration(compared.by)} earlier` : "which has no windows"}.` : null,
    ].filter(Boolean);
  }

  heard() {
    if (!this.shown) return "No results yet";
    const { question, range } = this.shown;
    const zone = question.store.timezone;
    return `${question.isHeat ? "Heat map of " : ""}${question.name} over time, ${written(range.from, zone)} to ${written(range.to, zone)}. ${this.sentences()[0]} Open “Numbers” below for a table of them. Keys: plus, minus, arrows, 0.`;
  }

  numbers() {
    const { question, series } = this.shown;
    const by = question.isHeat ? [] : question.by;
    return html`<details class="fold"><summary>Numbers</summary><div id=${this.id("numbers")} class="numbers" tabindex="0" role="region" aria-label=${`Numbers of panel ${this.index + 1}`}>${tableOf({ rows: series.rows, names: series.names, by, zone: question.store.timezone })}</div></details>`;
  }

  copies() {
    const { question, answers } = this.shown;
    const { text, note } = promQLOf(question, answers.rows);
    const one = ({ title, name, button, content, more = "" }) => html`<div><h3>${title} ${more}</h3><button type="button" ?disabled=${!content} @click=${() => this.copy(name, button)}>Copy ${button}</button><pre id=${this.id(name)} tabindex="0">${content}</pre></div>`;
    return html`<details class="fold query"><summary>This query in Python, on the command line, by curl, in PromQL</summary>
      ${one({ title: "Python", name: "python", button: "Python", content: pythonOf(answers.words, question) })}
      ${one({ title: "Command line", name: "command", button: "command", content: commandOf(answers.words) })}
      ${one({ title: "curl", name: "curl", button: "curl", content: curlOf(answers.words) })}
      ${one({ title: "PromQL", name: "promql", button: "PromQL", content: text, more: html`<small id=${this.id("promql-note")}>${note}</small>` })}
    </details>`;
  }
}

// Rows with the counts of each range of values as columns; nothing is known yet of a window that has not ended.
function countsOf(question, rows, heat) {
  const names = heat.ranges.map((range) => range.text);
  const counted = rows.map((row) => {
    const counts = heat.counts.get(row.end);
    return { ...row, ...Object.fromEntries(heat.ranges.map((range) => [range.text, counts ? counts.get(range) ?? 0 : null])) };
  });
  return { rows: counted, lines: [], names };
}

function windowsSentence(store, { rows, more, lines }) {
  const all = rangeOfStore(store);
  if (!all) return "The store has no data yet.";
  if (!rows.length) return `There are no windows in this range; the store has ${written(all.from, store.timezone)} to ${written(all.to, store.timezone)}.`;
  const partial = new Set(rows.filter((row) => row.partial).map((row) => row.at)).size;
  const cut = partial ? `; ${partial} of them partial: not over yet, or cut by what has expired` : "";
  const some = more ? `; ${lines.length} lines are drawn, there are more` : "";
  return `Windows of ${rows[0].level}: ${new Set(rows.map((row) => row.at)).size}, each from its start${cut}${some}.`;
}

function thresholdSentence(stretches, threshold, zone) {
  if (!stretches.length) return `Never above ${threshold}.`;
  const [{ at, end }] = stretches;
  const count = stretches.length > 1 ? ` ${stretches.length} stretches in all, the last until ${written(stretches.at(-1).end, zone)}.` : "";
  return `Above ${threshold} first from ${written(at, zone)} to ${written(end, zone)}.${count}`;
}
