// Charts by uPlot, whose script defines the global name. The cursors of all panels move together.

import { lookOf, themed } from "./colours.js";
import { drawHeat } from "./heat.js";
import { compact } from "./numbers.js";
import { steps } from "./series.js";
import { written } from "./times.js";

/* global uPlot */
const cursors = uPlot.sync("panels");

// Ticks of the time axis: from this distance on, in seconds, the text of each, and a second line if a year or day begins.
const TICKS = [
  [31536000, "{YYYY}", null, null, null, null, null, null, 1],
  [2419200, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [86400, "{MM}-{DD}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
];

export function drawLines(place, { question, range, series, threshold, hidden, onSelect, onCursor }) {
  const { lines, rows } = series;
  const looks = lines.map((line) => lookOf(question, line));
  const options = {
    series: lines.map((line, i) => ({
      label: line.label || line.name,
      stroke: themed(looks[i].colour),
      width: looks[i].width,
      dash: looks[i].dash.length ? looks[i].dash : undefined,
      show: !hidden.has(i),
      paths: uPlot.paths.stepped({ align: 1 }),
      gaps: (u, index, from, to, gaps) => gaps.map(([left, right]) => [left, right + 2]), // pixels: to the edge of the next step
      points: { show: rows.length < 3 },
    })),
    bands: bandsOf(question, lines),
    hooks: { draw: threshold === null ? [] : [(u) => drawThreshold(u, threshold)] },
    scales: { y: { range: (u, low, high) => axisRange(low, high, threshold) } },
  };
  return draw(place, { question, range, rows, options, onSelect, onCursor, data: steps(question, series) });
}

export function drawHeatMap(place, { question, range, rows, heat, onSelect, onCursor }) {
  const finite = heat.ranges.filter((each) => each.high !== undefined);
  const [low, high] = [finite[0]?.low ?? 0, finite.at(-1)?.high ?? 1];
  const options = {
    series: [{ show: false }],
    scales: { y: { distr: heat.isLog ? 3 : 1, range: () => [low, high] } },
    hooks: { draw: [(u) => drawHeat(u, rows, heat, themed("heat"))] },
  };
  return draw(place, { question, range, rows, options, onSelect, onCursor, data: [rows.map((row) => row.at), rows.map(() => null)] });
}

function axisRange(low, high, threshold) {
  const values = [low, high, threshold].filter((value) => value !== null && value !== undefined && Number.isFinite(value));
  if (!values.length) return [0, 1];
  const [least, greatest] = [Math.min(0, ...values), Math.max(...values)];
  return uPlot.rangeNum(least, greatest === least ? least + 1 : greatest, { min: { pad: 0, soft: 0, mode: 1 }, max: { pad: 0.08, soft: 0, mode: 2 } });
}

function bandsOf(question, lines) {
  if (!question.isBand) return [];
  const at = (suffix) => 1 + lines.findIndex((line) => line.name === `${question.measure.name}_${suffix}`);
  return [{ series: [at("p95"), at("p5")], fill: themed("band") }];
}

function draw(place, { question, range, rows, options, data, onSelect, onCursor }) {
  const zone = question.store.timezone;
  const grid = { stroke: themed("grid"), width: 1 };
  const axis = { stroke: themed("quiet"), font: "12px system-ui, sans-serif", grid, ticks: { show: false } };
  const { hooks, scales, ...others } = options;
  return new uPlot({
    width: place.clientWidth,
    height: place.clientHeight || 340,
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), zone),
    scales: { ...scales, x: { min: range.from, max: range.to, auto: false, range: () => [range.from, range.to] } },
    padding: [14, 18, 0, 0],
    legend: { show: false },
    axes: [{ ...axis, values: TICKS }, { ...axis, size: 62, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : compact(tick))) }],
    cursor: { drag: { x: true, y: false, setScale: false }, sync: { key: cursors.key, setSeries: false }, points: { size: 6 } },
    ...others,
    series: [{ value: (_, seconds) => (seconds === null ? "" : written(seconds, zone)) }, ...options.series],
    hooks: {
      ...hooks,
      drawClear: [(u) => shadePartial(u, rows)],
      setCursor: [(u) => onCursor(u)],
      setSelect: [(u) => u.select.width > 4 && onSelect(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"))],
    },
  }, data, place);
}

function shadePartial(u, rows) {
  u.ctx.save();
  u.ctx.fillStyle = themed("partial");
  for (const [at, end] of new Map(rows.filter((row) => row.partial).map((row) => [row.at, row.end]))) {
    const left = Math.max(u.valToPos(at, "x", true), u.bbox.left);
    const right = Math.min(u.valToPos(end, "x", true), u.bbox.left + u.bbox.width);
    if (right > left) u.ctx.fillRect(left, u.bbox.top, right - left, u.bbox.height);
  }
  u.ctx.restore();
}

function drawThreshold(u, threshold) {
  const y = u.valToPos(threshold, "y", true);
  u.ctx.save();
  u.ctx.strokeStyle = themed("wrong");
  u.ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
  u.ctx.lineWidth = 1.5 * devicePixelRatio;
  u.ctx.beginPath();
  u.ctx.moveTo(u.bbox.left, y);
  u.ctx.lineTo(u.bbox.left + u.bbox.width, y);
  u.ctx.stroke();
  u.ctx.restore();
}
