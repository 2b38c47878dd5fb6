"use strict";
// The page: a view is what the address says; every change of it is a new address, and every address one query.

const byId = (id) => document.getElementById(id);
const COLOURS = ["#1f77b4", "#d9600e", "#2c8c3c", "#c23b3b", "#7d55b5", "#8c564b", "#c2549b", "#5f6b7a", "#8a8b12", "#11909e"];
const LINES = 10; // at most so many, for no eye follows more
const TABLE_ROWS = 500;
const BAND = [0.05, 0.5, 0.95]; // quantiles of the band, and of the line within
const GAP = 0.001; // seconds
const BEFORE = { period: null, day: 86400, week: 604800 }; // seconds that are compared with what is shown; null: as long as it
const KEYS = { "+": "in", "=": "in", "-": "out", ArrowLeft: "earlier", ArrowRight: "later", 0: "all" };

// Ticks of the axis of time: from so many seconds apart on, how each is written, and more where a year or day begins.
const TICKS = [
  [31536000, "{YYYY}", null, null, null, null, null, null, 1],
  [2419200, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [86400, "{MM}-{DD}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
];

let stores = {}; // name -> what the server says of it
let shown = null; // {from, to} in seconds, what the chart shows
let plot = null;
let asked = 0; // the last question; answers to earlier ones come too late

class Unauthorized extends Error {}

async function fetchJSON(path) {
  const token = sessionStorage.getItem("token");
  const answer = await fetch(path, token ? { headers: { Authorization: `Bearer ${token}` } } : {});
  const body = await answer.json();
  if (answer.status === 401) throw new Unauthorized(body.error);
  if (!answer.ok) throw new Error(body.error);
  return body;
}

// ---- the view: words of the address -------------------------------------------------------------------------------

const view = () => Object.fromEntries(new URLSearchParams(location.search));

function go(changes, replacing = false) {
  const words = new URLSearchParams(location.search);
  for (const [word, value] of Object.entries(changes)) {
    if (value === null || value === "") words.delete(word);
    else words.set(word, value);
  }
  history[replacing ? "replaceState" : "pushState"](null, "", `?${words}`);
  show();
}

function move(way) {
  if (way === "all") return go({ range: null, from: null, to: null });
  if (!shown) return undefined;
  const length = shown.to - shown.from;
  const by = { earlier: [-0.5, -0.5], later: [0.5, 0.5], in: [0.25, -0.25], out: [-0.5, 0.5] }[way];
  return choose(shown.from + by[0] * length, shown.to + by[1] * length);
}

function choose(from, to) {
  if (to - from < 2) return;
  go({ range: null, from: timeText(from), to: timeText(to) });
}

// ---- the query that a view is -------------------------------------------------------------------------------------

const quantilesOf = (measure) => measure.columns.filter((column) => "quantile" in column);

const bandOf = (measure) => [...new Set([...BAND, ...quantilesOf(measure).map((column) => column.quantile)])].sort((a, b) => a - b);

function measureText(measure, column) {
  if (column !== "band") return measure.name;
  const all = bandOf(measure);
  const call = measure.call.replace(/,? ?quantiles=\[[^\]]*\]/, "").replace(/\)$/, `, quantiles=[${all.join(", ")}])`);
  return `${measure.name}=${call}`;
}

function queryOf(store, words) {
  const measure = store.measures.find((each) => each.name === words.measure) || store.measures[0];
  const isSketch = quantilesOf(measure).length > 0;
  const numbers = measure.columns.filter((column) => /int|double|float|decimal/.test(column.type));
  const isHeat = words.drawn === "heat" && measure.buckets;
  const column = words.column || (isSketch && !words.by ? "band" : (quantilesOf(measure)[0] || numbers[0] || measure.columns[0]).name);
  const where = store.keys.map((key) => [key, words[`key.${key.name}`]]).filter(([, value]) => value !== undefined);
  return {
    measure, column, isSketch, isHeat,
    words: {
      store: store.name,
      points: Math.max(60, Math.min(600, Math.floor(byId("chart").clientWidth / (isHeat ? 6 : 3)))),
      within: words.range || (words.from || words.to ? `${words.from || ""},${words.to || ""}` : null),
      measures: measureText(measure, column),
      keys: isHeat ? "" : words.by || "",
      where: where.map(([key, value]) => condition(key, JSON.parse(value))).join(" AND ") || null,
      flat: "true",
    },
  };
}

function condition(key, value) {
  const name = /^[a-z_][a-z0-9_]*$/.test(key.name) ? key.name : `"${key.name.replaceAll('"', '""')}"`;
  if (value === null) return `${name} IS NULL`;
  return /int|double|float|decimal|bool/.test(key.type) ? `${name} = ${value}` : `${name} = '${String(value).replaceAll("'", "''")}'`;
}

// ---- showing --------------------------------------------------------------------------------------------------------

function say(sentence, wrong = false) {
  byId("status").textContent = sentence;
  byId("status").classList.toggle("wrong", wrong);
}

async function show() {
  const question = ++asked;
  byId("results").classList.add("busy");
  try {
    if (!Object.keys(stores).length) {
      for (const each of (await fetchJSON("/v1/stores")).stores) stores[each.name] = null;
    }
    const words = view();
    const name = words.store in stores ? words.store : Object.keys(stores)[0];
    const store = (stores[name] = await fetchJSON(`/v1/stores/${name}`));
    const query = queryOf(store, words);
    await fillForm(store, query, words);
    const search = new URLSearchParams(Object.entries(query.words).filter(([, value]) => value !== null));
    const answer = await fetchJSON(`/v1/query?${search}`);
    const rows = rowsOf(answer);
    const heat = query.isHeat && rows.length ? heatOf(await histograms(store, query, words, rows)) : null;
    const compared = words.compare in BEFORE && rows.length && !query.isHeat ? await comparison(query, words, rows, spanOf(store, words, rows)) : null;
    if (question !== asked) return;
    byId("token-form").hidden = true;
    byId("colours").hidden = !heat;
    if (heat) drawHeatMap(store, query, words, answer, rows, heat);
    else draw(store, query, words, answer, rows, compared);
    writeQuery(query.words, search);
    writePromQL(store, query, words, rows);
  } catch (error) {
    if (question !== asked) return;
    say(error.message, true);
    byId("token-form").hidden = !(error instanceof Unauthorized);
    if (error instanceof Unauthorized) byId("token").focus();
  } finally {
    if (question === asked) byId("results").classList.remove("busy");
  }
}

// The buckets of each window that is over, as Prometheus has them.
async function histograms(store, query, words, rows) {
  const length = rows[0].end - rows[0].at;
  if (rows.some((row) => row.end - row.at !== length)) throw new Error("The windows are not equally long; a heat map needs a shorter range.");
  const expression = promQL(store, { ...words, by: null }, quantilesOf(query.measure)[0].promql, length);
  const search = new URLSearchParams({ query: expression, start: rows[0].end, end: rows.at(-1).end, step: length });
  return (await fetchJSON(`/api/v1/query_range?${search}`)).data.result[0]?.histograms ?? [];
}

const rowsOf = (answer) => answer.rows.map((row) => ({ ...row, at: Date.parse(row.window_start) / 1000, end: Date.parse(row.window_end) / 1000 }));
const timeText = (seconds) => new Date(Math.round(seconds) * 1000).toISOString().replace(".000Z", "Z");

// The windows of an earlier range, moved to where the shown ones stand: by a whole number of windows.
async function comparison(query, words, rows, span) {
  const length = rows[0].end - rows[0].at;
  const by = Math.ceil((BEFORE[words.compare] ?? span.to - span.from) / length) * length;
  const { points, ...others } = query.words;
  const within = `${timeText(span.from - by)},${timeText(span.to - by)}`;
  const search = new URLSearchParams(Object.entries({ ...others, within, per: rows[0].level }).filter(([, value]) => value !== null));
  const answer = await fetchJSON(`/v1/query?${search}`);
  return { name: `previous ${words.compare}`, by, rows: rowsOf(answer).map((row) => ({ ...row, at: row.at + by, end: row.end + by })) };
}

// Rows with the compared values as further columns; windows that are in one range alone are rows too.
function beside(rows, compared, names, by) {
  const place = (row) => JSON.stringify([row.at, by ? row[by] : null]);
  const merged = new Map(rows.map((row) => [place(row), row]));
  for (const before of compared.rows) {
    const nothing = { ...before, ...Object.fromEntries(names.map((name) => [name, null])) };
    const row = merged.get(place(before)) ?? nothing;
    const values = Object.fromEntries(names.map((name) => [beforeName(name, compared), before[name]]));
    merged.set(place(before), { ...row, ...values, partial: row.partial || before.partial });
  }
  return [...merged.values()].sort((a, b) => a.at - b.at);
}

const beforeName = (name, compared) => `${name}, ${compared.name}`;

function options(select, choices, chosen) {
  select.replaceChildren(...choices.map(([value, text]) => new Option(text, value, false, value === chosen)));
  select.value = chosen;
}

async function fillForm(store, query, words) {
  document.title = `${query.measure.name} · ${store.name} · tiltframe`;
  options(byId("store"), Object.keys(stores).map((name) => [name, name]), store.name);
  options(byId("measure"), store.measures.map((measure) => [measure.name, measure.name]), query.measure.name);
  const columns = query.measure.columns.map((column) => [column.name, column.name]);
  options(byId("column"), [...(query.isSketch ? [["band", "quantiles, with a band"]] : []), ...columns], query.column);
  options(byId("by"), [["", "nothing: all together"], ...store.keys.map((key) => [key.name, key.name])], words.by || "");
  const filters = await Promise.all(store.keys.map((key) => filterOf(store, key, words[`key.${key.name}`])));
  if (document.activeElement?.closest("#filters") === null) byId("filters").replaceChildren(...filters);
  byId("drawn").value = query.isHeat ? "heat" : "";
  byId("drawn").disabled = !query.measure.buckets;
  for (const id of ["column", "by", "compare"]) byId(id).disabled = query.isHeat;
  byId("compare").value = words.compare in BEFORE ? words.compare : "";
  options(byId("range"), [...byId("range").options].map((option) => [option.value, option.text]), words.from || words.to ? "chosen" : words.range || "");
  byId("range").querySelector("[value=chosen]").disabled = true;
}

async function filterOf(store, key, chosen) {
  const { values, more } = await fetchJSON(`/v1/stores/${store.name}/keys/${encodeURIComponent(key.name)}`);
  const label = document.createElement("label");
  const select = document.createElement("select");
  const choices = values.map((value) => [JSON.stringify(value), value === null ? "(none)" : String(value)]);
  options(select, [["", more ? `all, or of the first ${values.length}` : "all"], ...choices], chosen ?? "");
  select.addEventListener("change", () => go({ [`key.${key.name}`]: select.value }));
  label.append(`${key.name} `, select);
  return label;
}

const number = (value) => (value === null || value === undefined ? null : Number(value));
const compact = (value) => (value === null ? "·" : value.toLocaleString("en", { maximumSignificantDigits: 5, notation: Math.abs(value) >= 1e7 ? "compact" : "standard" }));

function draw(store, query, words, answer, rows, compared) {
  const labels = ["level", "window_start", "window_end", words.by, "partial"];
  const names = query.column === "band"
    ? answer.columns.map((column) => column.name).filter((name) => /_p[0-9]+(_[0-9]+)?$/.test(name) && !labels.includes(name))
    : [query.column];
  const all = compared ? beside(rows, compared, names, words.by) : rows;
  const values = words.by ? [...new Set(all.map((row) => row[words.by]))] : [null];
  const compares = compared ? (query.column === "band" ? [`${query.measure.name}_p50`] : names) : [];
  const lines = values.slice(0, LINES).flatMap((value, i) => [
    ...names.map((name) => ({ value, name, colour: i })),
    ...compares.map((name) => ({ value, name: beforeName(name, compared), colour: i, before: compared.name })),
  ]);
  shown = spanOf(store, words, rows);
  drawChart(store, query, words, all, lines);
  drawTable(store, words, all, [...names, ...compares.map((name) => beforeName(name, compared))]);
  const sentence = windowsSentence(store, rows, values.length > LINES ? `; ${LINES} of ${values.length} lines are drawn` : "");
  const beforeSentence = compared
    ? [`Dashed: the ${compared.name}, ${compared.rows.length ? `${duration(compared.by)} earlier` : "of which there are no windows"}.`]
    : [];
  tell(store, query.column === "band" ? `Quantiles of ${query.measure.name}` : query.column, [sentence, ...beforeSentence, ...answer.warnings]);
}

function windowsSentence(store, rows, more) {
  if (!rows.length) return `There are no windows in this range; the store has ${wall(store, rangeOf(store).from)} to ${wall(store, rangeOf(store).to)}.`;
  const partial = new Set(rows.filter((row) => row.partial).map((row) => row.at)).size;
  const windows = new Set(rows.map((row) => row.at)).size;
  return `Windows of ${rows[0].level}: ${windows}, each from its start` +
    (partial ? `; ${partial} of them partial: not over yet, or cut by what has expired` : "") + `${more}.`;
}

// Say what is shown: below the controls, and to who hears the chart.
function tell(store, what, sentences) {
  say(sentences.join(" "));
  byId("chart").setAttribute("aria-label", `${what} over time, ${wall(store, shown.from)} to ${wall(store, shown.to)}. ${sentences[0]} The table has the numbers. Keys: plus, minus, arrows, 0.`);
  byId("from").value = wall(store, shown.from).replace(" ", "T");
  byId("to").value = wall(store, shown.to).replace(" ", "T");
}

function drawHeatMap(store, query, words, answer, rows, heat) {
  shown = spanOf(store, words, rows);
  const finite = heat.ranges.filter((range) => range.high !== undefined);
  const [low, high] = [finite[0]?.low ?? 0, finite.at(-1)?.high ?? 1];
  makePlot(store, rows, {
    scales: { y: { distr: heat.isLog ? 3 : 1, range: () => [low, high] } },
    series: [{ show: false }],
    legend: { show: false },
    hooks: { draw: [(u) => drawHeat(u, rows, heat, themed("line"))] },
  }, [rows.map((row) => row.at), rows.map(() => null)]);
  writeColours(heat);
  const counted = rows.map((row) => {
    const counts = heat.counts.get(row.end); // of a window that is not over nothing is known yet
    return { ...row, ...Object.fromEntries(heat.ranges.map((range) => [range.text, counts ? counts.get(range) ?? 0 : null])) };
  });
  drawTable(store, { ...words, by: null }, counted, heat.ranges.map((range) => range.text));
  const honest = "The stronger the colour, the more rows in that range of values; a bucket of the sketch counts in the range that has its middle.";
  tell(store, `Heat map of ${query.measure.name}`, [windowsSentence(store, rows, ""), honest, ...answer.warnings]);
}

function rangeOf(store) {
  const told = store.levels.filter((level) => level.first);
  return { from: Math.min(...told.map((level) => Date.parse(level.first))) / 1000, to: Math.max(...told.map((level) => Date.parse(level.end))) / 1000 };
}

function spanOf(store, words, rows) {
  const all = rows.length ? { from: Math.min(...rows.map((row) => row.at)), to: Math.max(...rows.map((row) => row.end)) } : rangeOf(store);
  const ago = { h: 3600, d: 86400 }[words.range?.slice(-1)] * -parseInt(words.range);
  if (words.range) return { from: Date.now() / 1000 - ago, to: Date.now() / 1000 };
  const read = (text, otherwise) => (/Z$/.test(text || "") ? Date.parse(text) / 1000 : otherwise);
  return { from: read(words.from, all.from), to: read(words.to, all.to) };
}

// A moment as the clocks of the store's zone show it.
function wall(store, seconds) {
  if (!Number.isFinite(seconds)) return "nothing";
  return new Date(seconds * 1000).toLocaleString("sv-SE", { timeZone: store.timezone });
}

function drawChart(store, query, words, rows, lines) {
  const [times, data] = steps(rows, lines, words.by);
  const isBand = query.column === "band";
  const suffix = (name) => name.slice(query.measure.name.length + 1);
  const series = lines.map((line) => ({
    label: isBand ? suffix(line.name) : words.by ? [line.value ?? "(none)", ...(line.before ? [line.before] : [])].join(", ") : line.name,
    stroke: words.by ? COLOURS[line.colour % COLOURS.length] : line.before ? themed("before") : themed("line"),
    width: line.before ? 1.5 : isBand && suffix(line.name) !== "p50" ? 0.8 : 2,
    dash: line.before ? [7, 4] : isBand && !["p5", "p50", "p95"].includes(suffix(line.name)) ? [2, 3] : undefined,
    paths: uPlot.paths.stepped({ align: 1 }),
    gaps: (u, i, from, to, gaps) => gaps.map(([left, right]) => [left, right + 2]), // px: with the edge of the step after
    points: { show: rows.length < 3 },
    value: (_, value) => (value === null ? "·" : compact(value)),
  }));
  const at = (name) => 1 + lines.findIndex((line) => suffix(line.name) === name);
  makePlot(store, rows, { series, bands: isBand ? [{ series: [at("p95"), at("p5")], fill: themed("band") }] : [] }, [times, ...data]);
}

const themed = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// Draw over the time that is shown; a range that is marked is shown next.
function makePlot(store, rows, { series, scales, hooks, ...others }, data) {
  const axis = { stroke: themed("ink"), grid: { stroke: themed("grid"), width: 1 }, ticks: { stroke: themed("grid"), width: 1 } };
  const chart = byId("chart");
  plot?.destroy();
  plot = new uPlot({
    width: chart.clientWidth,
    height: 380,
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), store.timezone),
    scales: { ...scales, x: { min: shown.from, max: shown.to, auto: false, range: () => [shown.from, shown.to] } },
    padding: [12, 24, 0, 0],
    series: [{ label: store.timezone, value: (_, seconds) => (seconds === null ? "·" : wall(store, seconds)) }, ...series],
    axes: [{ ...axis, values: TICKS }, { ...axis, size: 64, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : compact(tick))) }],
    cursor: { drag: { x: true, y: false, setScale: false } },
    ...others,
    hooks: {
      ...hooks,
      drawClear: [(u) => shadePartial(u, rows, themed("partial"))],
      setSelect: [(u) => u.select.width > 4 && choose(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"))],
    },
  }, data, chart);
}

// Values from the start of each window to its end: after an end without a next window comes a moment of nothing.
function steps(rows, lines, by) {
  const times = [...new Set(rows.flatMap((row) => [row.at, row.end, row.end + GAP]))].sort((a, b) => a - b);
  const place = new Map(times.map((at, i) => [at, i]));
  const data = lines.map((line) => {
    const numbers = new Array(times.length).fill(null);
    for (const row of rows) {
      if (by && row[by] !== line.value) continue;
      for (let i = place.get(row.at); times[i] <= row.end; i++) numbers[i] = number(row[line.name]);
    }
    return numbers;
  });
  return [times, data];
}

function shadePartial(u, rows, fill) {
  u.ctx.save();
  u.ctx.fillStyle = fill;
  for (const [at, end] of new Map(rows.filter((row) => row.partial).map((row) => [row.at, row.end]))) {
    const left = Math.max(u.valToPos(at, "x", true), u.bbox.left);
    const right = Math.min(u.valToPos(end, "x", true), u.bbox.left + u.bbox.width);
    if (right > left) u.ctx.fillRect(left, u.bbox.top, right - left, u.bbox.height);
  }
  u.ctx.restore();
}

function drawTable(store, words, rows, names) {
  const table = document.querySelector("#numbers table");
  const heads = [`start, ${store.timezone}`, ...(words.by ? [words.by] : []), ...names];
  const cell = (tag, text, scope) => Object.assign(document.createElement(tag), { textContent: text, ...(scope && { scope }) });
  const row = (cells, partial) => {
    const tr = document.createElement("tr");
    tr.append(...cells);
    tr.classList.toggle("partial", Boolean(partial));
    return tr;
  };
  const some = rows.length > TABLE_ROWS ? `The last ${TABLE_ROWS} of ${rows.length} rows` : `${rows.length} rows`;
  table.caption.textContent = rows.some((each) => each.partial) ? `${some}; … is partial` : some;
  table.tHead.replaceChildren(row(heads.map((text) => cell("th", text, "col"))));
  table.tBodies[0].replaceChildren(...rows.slice(-TABLE_ROWS).map((each) => row([
    cell("th", wall(store, each.at) + (each.partial ? " …" : ""), "row"),
    ...(words.by ? [cell("td", each[words.by] ?? "(none)")] : []),
    ...names.map((name) => cell("td", (each[name] ?? null) === null ? "·" : typeof each[name] === "number" ? compact(each[name]) : String(each[name]))),
  ], each.partial)));
}

// ---- the query as others ask it -------------------------------------------------------------------------------------

function writeQuery(words, search) {
  const quote = (text) => `'${String(text).replaceAll("'", "'\\''")}'`;
  const [name, call] = [words.measures.split("=")[0], words.measures.slice(words.measures.indexOf("=") + 1)];
  const measures = call === name ? `measures=[${JSON.stringify(name)}]` : `measures={${JSON.stringify(name)}: aggr.${call}}`;
  const keys = words.keys ? [words.keys] : [];
  const given = (word) => (words[word] === null ? "" : `, ${word}=${JSON.stringify(words[word])}`);
  byId("python").textContent =
    `import aggr\nfrom tiltframe import FrameStore\n\nstore = FrameStore(${JSON.stringify(words.store)})  # or where it is\n` +
    `store.query(points=${words.points}${given("within")}${given("where")}, ${measures}, keys=${JSON.stringify(keys)}, flat=True)`;
  const option = (word) => (words[word] === null ? "" : ` --${word}=${quote(words[word])}`);
  byId("command").textContent = `tiltframe query ${quote(words.store)} --points ${words.points}${option("within")}${option("where")}` +
    ` --measure ${quote(words.measures)}${words.keys ? ` --key ${quote(words.keys)}` : " --no-keys"} --flat`;
  const bearer = sessionStorage.getItem("token") ? ' -H "Authorization: Bearer $TOKEN"' : "";
  byId("curl").textContent = `curl -s${bearer} ${quote(`${location.origin}/v1/query?${search}`)}`;
}

// Of each window its value stands at its end: asked for from the first end to the last, by steps of a window's length.
function writePromQL(store, query, words, rows) {
  const lengths = new Set(rows.map((row) => row.end - row.at));
  const [length] = lengths;
  const column = query.column === "band" ? quantilesOf(query.measure)[0] : query.measure.columns.find((each) => each.name === query.column);
  const expression = column?.promql && lengths.size === 1 ? promQL(store, words, column.promql, length) : null;
  const quantiles = query.column === "band" ? bandOf(query.measure) : column && "quantile" in column ? [column.quantile] : null;
  const texts = expression && quantiles ? quantiles.map((q) => `histogram_quantile(${q}, ${expression})`) : [expression];
  byId("promql").textContent = expression ? texts.join("\n") : "";
  byId("promql-note").textContent = !rows.length ? "— there are no windows to ask for"
    : lengths.size > 1 ? "— has no windows of unequal lengths; choose a shorter range"
    : !expression ? `— has no merge of ${query.column}`
    : `— step ${duration(length)}; each value stands at its window's end${texts.length > 1 ? "; a query a line" : ""}`;
  document.querySelector("[data-copy=promql]").disabled = !expression;
}

function promQL(store, words, { metric, aggregation, function: name }, length) {
  const labels = store.keys.map((key) => [key.label, words[`key.${key.name}`]]).filter(([, value]) => value !== undefined);
  const matchers = [["store", JSON.stringify(store.name)], ...labels].map(([label, value]) => `${label}=${JSON.stringify(String(JSON.parse(value) ?? ""))}`);
  const by = words.by ? ` by (${store.keys.find((key) => key.name === words.by).label})` : "";
  return `${aggregation}${by} (${name}(${metric}{${matchers.join(", ")}}[${duration(length)}]))`;
}

function duration(seconds) {
  const [unit, size] = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1], ["ms", 0.001]].find(([, size]) => seconds >= size && Number.isInteger(seconds / size));
  return `${seconds / size}${unit}`;
}

async function copy(button) {
  const text = byId(button.dataset.copy);
  getSelection().selectAllChildren(text); // can be copied by hand where the browser lets no page do it
  try {
    await navigator.clipboard.writeText(text.textContent);
    say(`Copied: ${button.textContent.replace("Copy ", "")}.`);
  } catch {
    say("Selected; copy it by Ctrl+C.");
  }
}

// ---- what people do ---------------------------------------------------------------------------------------------------

byId("store").addEventListener("change", (event) => {
  history.pushState(null, "", `?store=${encodeURIComponent(event.target.value)}`);
  byId("filters").replaceChildren();
  show();
});
byId("measure").addEventListener("change", (event) => go({ measure: event.target.value, column: null }));
byId("column").addEventListener("change", (event) => go({ column: event.target.value, ...(event.target.value === "band" && { by: null }) }));
byId("by").addEventListener("change", (event) => go({ by: event.target.value, ...(view().column === "band" && { column: null }) }));
byId("drawn").addEventListener("change", (event) => go({ drawn: event.target.value }));
byId("compare").addEventListener("change", (event) => go({ compare: event.target.value }));
byId("range").addEventListener("change", (event) => go({ range: event.target.value, from: null, to: null }));
for (const id of ["from", "to"]) {
  byId(id).addEventListener("change", () => go({ range: null, from: byId("from").value, to: byId("to").value }));
}
byId("moves").addEventListener("click", (event) => event.target.dataset.move && move(event.target.dataset.move));
byId("chart").addEventListener("keydown", (event) => {
  if (!(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  move(KEYS[event.key]);
});
byId("chart").addEventListener("dblclick", () => move("out"));
byId("query").addEventListener("click", (event) => event.target.dataset.copy && copy(event.target));
byId("view").addEventListener("submit", (event) => event.preventDefault());
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", byId("token").value.trim());
  show();
});
addEventListener("popstate", show);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(show, 200);
});
show();
