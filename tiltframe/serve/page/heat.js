// A heat map: the number of rows of each window in each range of values. The ranges consist of the sketch's own buckets.

import { compact } from "./numbers.js";

const RANGES = [8, 90]; // the fewest ranges, unless there are fewer buckets, and the most: one per four pixels
const SHADES = 8; // at the most; each is the same factor of counts

// Histograms of Prometheus' JSON, [end, {buckets: [[rule, low, high, count], …]}], as counts by window's end and range.
export function heatOf(histograms) {
  const windows = histograms.map(([end, { buckets }]) => [end, buckets.map(([, ...numbers]) => numbers.map(Number))]);
  const buckets = windows.flatMap(([, each]) => each).filter(([low, high]) => Number.isFinite(low) && Number.isFinite(high));
  const isLog = buckets.some(([low]) => low > 0) && !buckets.some(([, high]) => high <= 0);
  const edges = edgesOf(isLog ? buckets.filter(([low]) => low > 0) : buckets, isLog);
  const ranges = edges.slice(1).map((high, i) => ({ low: edges[i], high, text: `${compact(edges[i])} – ${compact(high)}` }));
  const below = { low: edges[0] ** 2 / edges[1], high: edges[0], text: `up to ${compact(edges[0])}` };
  const infinite = { "-Infinity": { text: "-Infinity" }, Infinity: { text: "Infinity" } };
  const rangeOfBucket = ([low, high]) => {
    if (!Number.isFinite(high)) return infinite[high];
    if (isLog && low <= 0) return below;
    const middle = isLog ? Math.sqrt(low * high) : (low + high) / 2;
    return ranges.find((range) => middle <= range.high) ?? ranges.at(-1);
  };
  const counts = new Map(windows.map(([end, each]) => [end, new Map()]));
  for (const [end, each] of windows) {
    for (const bucket of each) {
      const range = rangeOfBucket(bucket);
      counts.get(end).set(range, (counts.get(end).get(range) ?? 0) + bucket[2]);
    }
  }
  const met = new Set([...counts.values()].flatMap((each) => [...each.keys()]));
  const all = [infinite["-Infinity"], below, ...ranges, infinite.Infinity].filter((range) => ranges.includes(range) || met.has(range));
  const most = Math.max(1, ...[...counts.values()].flatMap((each) => [...each.values()]));
  return { counts, ranges: all, isLog, most };
}

// Edges of ranges that are equally wide, and none narrower than the widest bucket if that leaves enough of them.
function edgesOf(buckets, isLog) {
  if (!buckets.length) return [0, 1];
  const [to, from] = isLog ? [Math.log, Math.exp] : [Number, Number];
  const [low, high, widest] = buckets.reduce(
    ([least, most, width], [from, end]) => [Math.min(least, to(from)), Math.max(most, to(end)), Math.max(width, to(end) - to(from))],
    [Infinity, -Infinity, 0],
  );
  const fitting = widest > 0 ? Math.floor((high - low) / widest + 1e-6) : 1;
  const count = Math.max(1, Math.min(RANGES[1], Math.max(fitting, Math.min(RANGES[0], buckets.length))));
  return Array.from({ length: count + 1 }, (_, i) => from(low + ((high - low) * i) / count));
}

// Return the opacities, from few rows to many. Few different counts have few shades, so that each can be seen.
function opacitiesOf(most) {
  const count = Math.min(SHADES, most);
  return Array.from({ length: count }, (_, i) => (count === 1 ? 0.8 : 0.25 + (0.75 * i) / (count - 1)));
}

const shadeOf = (count, most, shades) => Math.min(shades - 1, Math.floor((Math.log(count) / Math.log(most + 1)) * shades));

export function drawHeat(u, rows, heat, colour) {
  u.ctx.save();
  u.ctx.beginPath();
  u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
  u.ctx.clip();
  u.ctx.fillStyle = colour;
  const opacities = opacitiesOf(heat.most);
  for (const row of rows) {
    const [left, right] = [row.at, row.end].map((at) => Math.round(u.valToPos(at, "x", true)));
    for (const [range, count] of heat.counts.get(row.end) ?? []) {
      if (range.high === undefined || !count) continue; // infinite values are in the table only
      const [top, bottom] = [range.high, range.low].map((value) => Math.round(u.valToPos(value, "y", true)));
      u.ctx.globalAlpha = opacities[shadeOf(count, heat.most, opacities.length)];
      u.ctx.fillRect(left, top, Math.max(1, right - left), Math.max(1, bottom - top));
    }
  }
  u.ctx.restore();
}

// Return the legend: [{opacity, text}], the counts of each shade.
export function shadesOf(heat) {
  const opacities = opacitiesOf(heat.most);
  const least = opacities.map((_, i) => Math.max(1, Math.ceil((heat.most + 1) ** (i / opacities.length) - 1e-9)));
  return opacities.map((opacity, i) => {
    const most = i + 1 < opacities.length ? least[i + 1] - 1 : heat.most;
    return { opacity, most, least: least[i], text: least[i] === most ? compact(most) : `${compact(least[i])} – ${compact(most)}` };
  }).filter((shade) => shade.most >= shade.least);
}
