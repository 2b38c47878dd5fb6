// The first view: all stores, and each measure as a small chart that leads to its panel.

import { textOf } from "./address.js";
import { compact, number } from "./numbers.js";
import { isNumeric, quantilesOf } from "./question.js";
import { rangeOfView } from "./ranges.js";
import { ask, storeOf } from "./server.js";
import { written } from "./times.js";
import { html, svg } from "./vendor/lit-html.js";

const [WIDTH, HEIGHT] = [240, 64];
const POINTS = 120;

// Return {store, range, rows, totals} or {name, error} of one store.
export async function summaryOf(name, view) {
  try {
    const store = await storeOf(name);
    const range = await rangeOfView(view, store);
    const words = { store: name, within: range.within, measures: store.measures.map((measure) => measure.name), keys: [], flat: "true" };
    const [windows, whole] = await Promise.all([ask({ ...words, points: POINTS }), ask({ ...words, per: "all" })]);
    return { name, store, range, rows: windows.rows, totals: whole.rows[0] ?? {} };
  } catch (error) {
    return { name, error };
  }
}

export function overviewOf(summaries, view, onRetry) {
  return summaries.map((summary) => html`<section class="store" aria-label=${`Store ${summary.name}`}>
    <h2>${summary.name}</h2>
    ${summary.error ? html`<p class="wrong">${summary.error.message}</p><button type="button" @click=${onRetry}>Try again</button>` : summary.store ? storeTemplate(summary, view) : html`<p class="quiet">Loading …</p>`}
  </section>`);
}

function storeTemplate({ store, range, rows, totals, name }, view) {
  const keys = store.keys.map((key) => key.name).join(", ") || "none";
  const shared = { range: view.range, from: view.from, to: view.to, compare: view.compare, live: view.live };
  return html`<p class="quiet">${written(range.from, store.timezone)} to ${written(range.to, store.timezone)} · levels ${store.levels.map((level) => level.level).join(", ")} · keys ${keys}${range.note ? html` · ${range.note}` : ""}</p>
    ${rows.length ? "" : html`<p>No data in this range.</p>`}
    <ul class="cards">${store.measures.map((measure) => {
      const address = textOf({ ...shared, panels: [{ store: name, measure: measure.name }] });
      return html`<li><a class="card" href=${address}><span class="name">${measure.name}</span> <span class="value">${valueOf(measure, totals)}</span>${sparkline(measure, rows, range)}<span class="call">${measure.call}</span></a></li>`;
    })}</ul>`;
}

const columnsOf = (measure) => {
  const quantiles = quantilesOf(measure);
  return quantiles.length ? [...new Set([quantiles[0], quantiles.at(-1)])] : measure.columns.filter(isNumeric).slice(0, 1);
};

function valueOf(measure, totals) {
  const columns = columnsOf(measure);
  if (!columns.length) return String(totals[measure.columns[0].name] ?? "·");
  const column = columns.at(-1);
  const label = "quantile" in column ? html`<small>${column.name.slice(measure.name.length + 1)}</small> ` : "";
  return html`${label}${compact(number(totals[column.name]))}`;
}

function sparkline(measure, rows, { from, to }) {
  const columns = columnsOf(measure);
  const values = columns.flatMap((column) => rows.map((row) => number(row[column.name]))).filter(Number.isFinite);
  if (!values.length) return html`<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" class="spark" aria-hidden="true"></svg>`;
  const [low, high] = [Math.min(0, ...values), Math.max(...values)];
  const x = (at) => (((Math.min(Math.max(at, from), to) - from) / (to - from)) * WIDTH).toFixed(1);
  const y = (value) => (HEIGHT - 2 - ((value - low) / (high - low || 1)) * (HEIGHT - 6)).toFixed(1);
  const pathOf = (column) => rows.filter((row) => Number.isFinite(number(row[column.name]))).map((row, i, all) => {
    const isJoined = i && all[i - 1].end === row.at;
    return `${isJoined ? "V" : `M${x(row.at)} `}${y(number(row[column.name]))}H${x(row.end)}`;
  }).join("");
  return html`<svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" class="spark" aria-hidden="true">${columns.map((column, i) => svg`<path d=${pathOf(column)} class=${i ? "upper" : "lower"}></path>`)}</svg>`;
}
