// The lines of a chart: one per key and result, now and before, with their values over time and in the complete range.

import { namesOf } from "./answers.js";
import { number } from "./numbers.js";

const GAP = 0.001; // seconds between a window without a successor and the moment without a value

const placeOf = (values) => JSON.stringify(values);
const keysOf = (question, row) => question.by.map((key) => row[key]);
const earlierName = (name, compared) => `${name}, ${compared.name}`;

// Return {rows, lines, names}: rows with the earlier values as further columns, and what is drawn of them.
export function seriesOf(question, answers) {
  const { answer, compared } = answers;
  const names = question.isNumber ? namesOf(question, answer) : [question.name];
  const compares = compared ? (question.isBand ? [`${question.measure.name}_p50`] : names) : [];
  let rows = compared ? joined(question, answers.rows, compared, compares) : answers.rows;
  if (question.isRate) rows = rows.map((row) => perSecond(row, [...names, ...compares.map((name) => earlierName(name, compared))]));
  const totals = new Map(answers.totals.map((row) => [placeOf(keysOf(question, row)), row]));
  const before = new Map((compared?.totals ?? []).map((row) => [placeOf(keysOf(question, row)), row]));
  const seconds = question.isRate ? coveredSeconds(answers.rows) : 1;
  const lines = answers.lines.flatMap((values, colour) => {
    const total = (map, name) => scaled(number(map.get(placeOf(values))?.[name]), seconds);
    const shared = { values, colour, label: labelOf(values) };
    return [
      ...names.map((name) => ({ ...shared, name, total: total(totals, name), before: compares.includes(name) ? total(before, name) : null })),
      ...compares.map((name) => ({ ...shared, name: earlierName(name, compared), isEarlier: true, earlier: compared.name, total: total(before, name) })),
    ];
  });
  return { rows, lines, names: [...names, ...compares.map((name) => earlierName(name, compared))] };
}

const labelOf = (values) => values.map((value) => value ?? "(none)").join(", ");
const scaled = (value, seconds) => (value === null || !seconds ? null : value / seconds);

function coveredSeconds(rows) {
  if (!rows.length) return 0;
  const first = Math.min(...rows.map((row) => row.at));
  return Math.min(Math.max(...rows.map((row) => row.end)), Math.max(Date.now() / 1000, first + 1)) - first;
}

// A window that has not ended is divided by the seconds until now.
function perSecond(row, names) {
  const now = Date.now() / 1000;
  const seconds = row.partial && now > row.at ? Math.min(row.end, now) - row.at : row.end - row.at;
  return { ...row, ...Object.fromEntries(names.map((name) => [name, scaled(number(row[name]), seconds)])) };
}

// Add the earlier values as columns; windows of one range alone are rows, too.
function joined(question, rows, compared, names) {
  const place = (row) => placeOf([row.at, ...keysOf(question, row)]);
  const all = new Map(rows.map((row) => [place(row), row]));
  for (const before of compared.rows) {
    const row = all.get(place(before)) ?? { ...before, ...Object.fromEntries(names.map((name) => [name, null])) };
    const values = Object.fromEntries(names.map((name) => [earlierName(name, compared), before[name]]));
    all.set(place(before), { ...row, ...values, partial: row.partial || before.partial });
  }
  return [...all.values()].sort((a, b) => a.at - b.at);
}

// Return [times, values of each line]: a value lasts from the start of its window to the end.
export function steps(question, { rows, lines }) {
  const times = [...new Set(rows.flatMap((row) => [row.at, row.end, row.end + GAP]))].sort((a, b) => a - b);
  const position = new Map(times.map((at, i) => [at, i]));
  const byKey = Map.groupBy(rows, (row) => placeOf(keysOf(question, row)));
  return [times, ...lines.map((line) => {
    const values = new Array(times.length).fill(null);
    for (const row of byKey.get(placeOf(line.values)) ?? []) {
      for (let i = position.get(row.at); times[i] <= row.end; i++) values[i] = number(row[line.name]);
    }
    return values;
  })];
}

// Return the stretches of consecutive windows in which any line is above a threshold, with the length of the first window.
export function stretchesAbove({ rows, lines }, threshold) {
  const names = new Set(lines.filter((line) => !line.isEarlier).map((line) => line.name));
  const above = rows.filter((row) => [...names].some((name) => number(row[name]) > threshold)).sort((a, b) => a.at - b.at);
  const stretches = [];
  for (const { at, end } of above) {
    const last = stretches.at(-1);
    if (last && at <= last.end) last.end = Math.max(last.end, end);
    else stretches.push({ at, end, length: end - at });
  }
  return stretches;
}
