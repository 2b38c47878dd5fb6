// The range that is shown: named, chosen, or by default the last day that has data.

import { ask } from "./server.js";
import { dayOf, readTime, timeText } from "./times.js";

const DAY = 86400;
const FAR = 20; // windows: a single window this far after all others is taken for a wrong clock
const UNITS = { h: 3600, d: DAY };

export const RANGES = [
  ["", "last day with data"],
  ["-1h", "last hour"],
  ["-6h", "last 6 hours"],
  ["-24h", "last 24 hours"],
  ["night", "last night, 22:00 to 06:00"],
  ["today", "today"],
  ["yesterday", "yesterday"],
  ["-7d", "last 7 days"],
  ["-30d", "last 30 days"],
  ["-365d", "last 365 days"],
  ["all", "all data"],
];

// Return the range of the windows of a store, or null if it has none.
export function rangeOfStore(store) {
  const levels = store.levels.filter((level) => level.first);
  if (!levels.length) return null;
  const times = (name) => levels.map((level) => Date.parse(level[name]) / 1000);
  return { from: Math.min(...times("first")), to: Math.max(...times("end")) };
}

// Return {from, to, within, note}: `within` is the range in the words of a query.
export async function rangeOfView(view, store) {
  const now = Date.now() / 1000;
  const all = rangeOfStore(store) ?? { from: now - DAY, to: now };
  if (view.from || view.to) return chosenRange(view, store, all);
  const relative = /^-(\d+)([hd])$/.exec(view.range ?? "");
  if (relative) return { from: now - relative[1] * UNITS[relative[2]], to: now, within: view.range };
  if (view.range === "all") return { ...all, within: null };
  if (view.range) return absolute(namedRange(view.range, store.timezone, now));
  return lastDayOf(store, all, now);
}

function chosenRange(view, store, all) {
  const [from, to] = [view.from, view.to].map((text) => readTime(text, store.timezone));
  const text = (read, original) => (read === null ? original ?? "" : timeText(read)); // the server refuses what is not a time
  return { from: from ?? all.from, to: to ?? all.to, within: `${text(from, view.from)},${text(to, view.to)}` };
}

const absolute = ({ from, to, ...more }) => ({ from, to, within: `${timeText(from)},${timeText(to)}`, ...more });

function namedRange(name, zone, now) {
  if (name === "today") return { from: dayOf(now, zone), to: dayOf(now, zone, { days: 1 }) };
  if (name === "yesterday") return { from: dayOf(now, zone, { days: -1 }), to: dayOf(now, zone) };
  if (name !== "night") throw new Error(`There is no range '${name}'; choose one of the list.`);
  const days = now < dayOf(now, zone, { hours: 6 }) ? -1 : 0; // a night is over at six
  return { from: dayOf(now, zone, { days: days - 1, hours: 22 }), to: dayOf(now, zone, { days, hours: 6 }) };
}

const lastDays = new Map(); // "name version" -> range

// Return the last day that has data. Times after now, and a single window far after all others, come from wrong clocks.
async function lastDayOf(store, all, now) {
  const place = `${store.name} ${store.version} ${Math.floor(now / 3600)}`;
  if (!lastDays.has(place)) lastDays.set(place, await findLastDay(store, all, now));
  return lastDays.get(place);
}

async function findLastDay(store, all, now) {
  const finest = store.levels[0].end ? Date.parse(store.levels[0].end) / 1000 : all.to; // coarser windows end later, without data
  const isAhead = finest > now + DAY;
  let end;
  try {
    end = await newestEnd(store, all.from, isAhead ? now : finest);
    if (end === null && isAhead) end = await newestEnd(store, all.from, all.to);
  } catch {
    end = null; // the store is too large for this question; the newest window is a good guess
  }
  const to = Math.min(end ?? Infinity, isAhead ? Math.max(now, end ?? 0) : finest);
  const from = Math.max(all.from, Math.floor((to - DAY) / 3600) * 3600);
  const note = finest > to + DAY ? `A window ends ${Math.round((finest - to) / DAY).toLocaleString("en")} days later, probably because of a wrong clock.` : null;
  return absolute({ from, to, note });
}

// Return the end of the newest window that is not far from all others, to a day, or null.
async function newestEnd(store, from, to) {
  const words = { store: store.name, points: 400, within: `${timeText(from)},${timeText(to)}`, measures: store.measures[0].name, keys: "" };
  const { rows } = await ask(words);
  if (!rows.length) return null;
  const row = rows.at(isFar(rows) ? -2 : -1);
  if (row.end - row.at <= DAY) return row.end;
  const start = Math.max(from, row.at);
  return row.end - row.at < to - from || to > row.end ? newestEnd(store, start, Math.min(to, row.end)) : row.end;
}

function isFar(rows) {
  if (rows.length < 5) return false;
  const [before, last] = rows.slice(-2);
  return last.at - before.end > FAR * (last.end - last.at);
}
