// The query of a panel: which measure, as which result, over which windows.

import { conditionOf, quotedName } from "./conditions.js";

const BAND = [0.05, 0.5, 0.95]; // quantiles of the band and of its middle
const NUMERIC = /int|double|float|decimal/;
const PIXELS = 3; // per window

export const isNumeric = (column) => NUMERIC.test(column.type);
export const quantilesOf = (measure) => measure.columns.filter((column) => "quantile" in column);
export const bandOf = (measure) => [...new Set([...BAND, ...quantilesOf(measure).map((column) => column.quantile)])].sort((a, b) => a - b);

// Return the columns that can be divided by another: numbers of all measures.
export const numericColumns = (store) => store.measures.flatMap((measure) => measure.columns.filter(isNumeric));

// A rate is a growing count or sum divided by the seconds of its window.
export const canBeRate = (column) => column?.promql?.function === "increase" && !("quantile" in column);

// Return the object of a name. An address may name what does not exist, or no longer.
export function named(objects, name, word) {
  const found = objects.find((each) => each.name === name);
  if (!found) throw new Error(`There is no ${word} '${shortened(name)}'; there are: ${shortened(objects.map((each) => each.name).join(", "))}.`);
  return found;
}

const shortened = (text) => (text.length > 200 ? `${text.slice(0, 200)} …` : text);

export function questionOf(store, panel) {
  const measure = panel.measure ? named(store.measures, panel.measure, "measure") : store.measures[0];
  const by = [...new Set(panel.by ?? [])].map((name) => named(store.keys, name, "key").name);
  for (const word of Object.keys(panel)) if (word.startsWith("key.")) named(store.keys, word.slice(4), "key");
  const isHeat = panel.drawn === "heat" && measure.buckets;
  const quantiles = quantilesOf(measure);
  const chosen = panel.column ? named(measure.columns, panel.column, "result") : undefined;
  const isBand = quantiles.length > 0 && !by.length && !chosen;
  const column = chosen ?? quantiles.at(-1) ?? measure.columns.find(isNumeric) ?? measure.columns[0];
  const divisor = !isBand && panel.as?.startsWith("over:") && isNumeric(column) ? named(numericColumns(store), panel.as.slice(5), "result") : null;
  const isRate = !isBand && panel.as === "rate" && canBeRate(column);
  const name = divisor ? `${column.name}_per_${divisor.name}` : column.name;
  return { store, panel, measure, by, isHeat, isBand, column, divisor, isRate, name, isNumber: isBand || Boolean(divisor) || isNumeric(column) };
}

// Return the text of the parameter `measures`.
export function measureText({ measure, isBand, column, divisor, name }) {
  if (divisor) return `${name}=${quotedName(column.name)} / ${quotedName(divisor.name)}`;
  if (!isBand) return measure.name;
  const call = measure.call.replace(/,? ?quantiles=\[[^\]]*\]/, "").replace(/\)$/, `, quantiles=[${bandOf(measure).join(", ")}])`);
  return `${measure.name}=${call}`;
}

// Return the parameters of the query of windows; a plot of this width, in pixels, has no use for more of them.
export function windowsWords(question, { width, within }) {
  return {
    store: question.store.name,
    points: Math.max(60, Math.min(600, Math.floor(width / PIXELS))),
    within,
    measures: measureText(question),
    keys: question.isHeat ? [] : question.by,
    where: conditionOf(question.store, question.panel),
    flat: "true",
  };
}

// Return the parameters of the query of one result per key over the complete range.
export function totalsWords(question, { within, limit, isAscending }) {
  const order = question.by.length && question.isNumber ? `${quotedName(question.name)}${isAscending ? "" : " desc"}` : null;
  return {
    store: question.store.name,
    per: "all",
    within,
    measures: measureText(question),
    keys: question.by,
    where: conditionOf(question.store, question.panel),
    flat: "true",
    order_by: order,
    limit: question.by.length ? limit : null,
    having: order ? `${quotedName(question.name)} IS NOT NULL` : null,
  };
}
