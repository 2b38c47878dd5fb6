// The answers that a panel shows: windows, totals of the complete range, the same of an earlier range, and histograms.

import { allOf, anyOf } from "./conditions.js";
import { histogramQuery } from "./promql.js";
import { bandOf, totalsWords, windowsWords } from "./question.js";
import { ask, fetchJSON, searchOf } from "./server.js";
import { timeText } from "./times.js";

export const EARLIER = { period: null, day: 86400, week: 604800, month: 2419200 }; // seconds; null: as long as the range
const LINES = 10;
const MANY_LINES = 200; // more are drawn only after a confirmation
export const MOST_LINES = 1000;

// A question of more lines than anyone reads; `count` is null if it is above MOST_LINES.
export class TooManyLines extends Error {}

export async function answersOf(question, { range, compare, width }) {
  const words = windowsWords(question, { width, within: range.within });
  const ranking = question.by.length && !question.isHeat ? await rankingOf(question, range) : null;
  if (ranking?.condition) words.where = allOf([words.where, ranking.condition]);
  const totals = ranking ? ranking.rows : ask(totalsWords(question, { within: range.within })).then((answer) => answer.rows);
  const [answer, wholeRange] = await Promise.all([ask(words), totals]);
  const rows = answer.rows;
  const lines = ranking?.rows.map((row) => question.by.map((key) => row[key])) ?? [[]];
  const result = { words, answer, rows, lines, more: ranking?.more ?? false, totals: wholeRange, compared: null, histograms: null };
  if (question.isHeat) result.histograms = rows.length ? await histogramsOf(question, rows) : [];
  else if (compare && Object.hasOwn(EARLIER, compare) && rows.length) result.compared = await earlier(question, { words, rows, range, compare });
  return result;
}

// Return the greatest keys over the complete range, as merged states give them, and the condition that selects them.
async function rankingOf(question, range) {
  const asked = question.panel.lines ?? "";
  const isAscending = asked.startsWith("-");
  const count = asked === "all" ? MOST_LINES : Math.min(MOST_LINES, Math.trunc(Math.abs(Number(asked)))) || LINES;
  const { rows } = await ask(totalsWords(question, { within: range.within, limit: count + 1, isAscending }));
  if (asked === "all" && rows.length > MANY_LINES) {
    throw new TooManyLines(tooManyText(question, rows.length > MOST_LINES ? null : rows.length));
  }
  const more = rows.length > count;
  if (more) rows.length = count;
  const keys = question.by.map((name) => question.store.keys.find((key) => key.name === name));
  const combinations = rows.map((row) => question.by.map((key) => row[key]));
  return { rows, more, condition: more ? anyOf(keys, combinations) : null };
}

function tooManyText({ by, store }, count) {
  if (count !== null) return `There are ${count.toLocaleString("en")} lines of ${by.join(", ")}.`;
  const coarsest = store.levels.at(-1);
  return `There are more than ${MOST_LINES.toLocaleString("en")} lines of ${by.join(", ")}; the level ${coarsest.level} has ` +
    `${coarsest.rows.toLocaleString("en")} states. At most ${MOST_LINES.toLocaleString("en")} are drawn.`;
}

// Return the windows and totals of an earlier range; the windows are moved to the times of the range, by whole windows.
async function earlier(question, { words, rows, range, compare }) {
  const length = rows[0].end - rows[0].at;
  const by = Math.ceil((EARLIER[compare] ?? range.to - range.from) / length) * length;
  const within = `${timeText(range.from - by)},${timeText(range.to - by)}`;
  const { points, ...others } = words;
  const totals = { ...totalsWords(question, { within }), where: words.where, order_by: null, limit: null };
  const [answer, whole] = await Promise.all([ask({ ...others, within, per: rows[0].level }), ask(totals)]);
  const moved = answer.rows.map((row) => ({ ...row, at: row.at + by, end: row.end + by }));
  return { name: `previous ${compare}`, by, rows: moved, totals: whole.rows };
}

// Return the buckets of each window that has ended, as Prometheus' API returns them. Windows such as months and the days
// of a clock change have different lengths; each run of windows of one length is a query.
async function histogramsOf(question, rows) {
  const histograms = [];
  for (const { length, from, to } of runsOf(rows)) { // one after the other: the server computes few queries at once
    const search = searchOf({ query: histogramQuery(question, length), start: from, end: to, step: length });
    histograms.push(...((await fetchJSON(`/api/v1/query_range?${search}`)).data.result[0]?.histograms ?? []));
  }
  return histograms;
}

// Return the runs of windows that have one length and whole steps between their ends, with the first and the last end.
function runsOf(rows) {
  const runs = [];
  for (const { at, end } of rows) {
    const last = runs.at(-1);
    if (last && last.length === end - at && (end - last.to) % last.length === 0) last.to = end;
    else runs.push({ length: end - at, from: end, to: end });
  }
  return runs;
}

// Return the names of the results that are drawn, one line each.
export function namesOf(question, answer) {
  if (!question.isBand) return [question.name];
  const suffixes = bandOf(question.measure).map((quantile) => `${question.measure.name}_${percentile(quantile)}`);
  return answer.columns.map((column) => column.name).filter((name) => suffixes.includes(name));
}

export const percentile = (quantile) => `p${Number((quantile * 100).toPrecision(12)).toString().replace(".", "_")}`;
