// The query of a panel in PromQL, if merged states answer it.

import { filtersOf } from "./conditions.js";
import { bandOf, quantilesOf } from "./question.js";
import { duration } from "./times.js";

// Return the text of a key's value in a label: the server prints floats as Python does, such as 1.0 and 1e-05.
export function labelText(key, value) {
  if (typeof value !== "number" || !/float|double/.test(key.type)) return String(value ?? "");
  const [digits, exponent] = value.toExponential().split("e");
  const size = Math.abs(Number(exponent));
  if (Number(exponent) < -4 || Number(exponent) > 15) return `${digits}e${exponent[0]}${String(size).padStart(2, "0")}`;
  return Number.isInteger(value) ? `${value}.0` : String(value);
}

function merged({ store, panel, by }, { metric, aggregation, function: name }, length) {
  const labels = filtersOf(store, panel).map(({ key, value }) => [key.label, labelText(key, value)]);
  const matchers = [["store", store.name], ...labels].map(([label, value]) => `${label}=${JSON.stringify(value)}`);
  const kept = by.length ? ` by (${by.map((name) => store.keys.find((key) => key.name === name).label).join(", ")})` : "";
  return `${aggregation}${kept} (${name}(${metric}{${matchers.join(", ")}}[${duration(length)}]))`;
}

// Return the query of the histogram of all keys together. PromQL has no form for a typed condition.
export function histogramQuery(question, length) {
  if (question.panel.where) throw new Error("A heat map cannot be restricted by a typed condition; use the filters of the keys, or draw lines.");
  return merged({ ...question, by: [] }, quantilesOf(question.measure)[0].promql, length);
}

// Return {text, note}. A value stands at the end of its window: the query has steps of a window's length.
export function promQLOf(question, rows) {
  const lengths = new Set(rows.map((row) => row.end - row.at));
  const [length] = lengths;
  if (!rows.length) return { text: "", note: "— there are no windows" };
  if (lengths.size > 1) return { text: "", note: "— the windows have different lengths; choose a shorter range" };
  if (question.panel.where) return { text: "", note: "— a typed condition has no form in PromQL" };
  const texts = textsOf(question, length);
  if (!texts) return { text: "", note: `— has no merge of ${question.name}` };
  return { text: texts.join("\n"), note: `— step ${duration(length)}; each value stands at its window's end${texts.length > 1 ? "; a query a line" : ""}` };
}

function textsOf(question, length) {
  const { column, divisor, isBand, isHeat, isRate, measure } = question;
  if (isHeat) return [histogramQuery(question, length)];
  const spec = isBand ? quantilesOf(measure)[0].promql : column.promql;
  if (!spec) return null;
  if (divisor) {
    if (!divisor.promql || "quantile" in column || "quantile" in divisor) return null;
    return [`${merged(question, spec, length)} / ${merged(question, divisor.promql, length)}`];
  }
  const expression = merged(question, isRate ? { ...spec, function: "rate" } : spec, length);
  if (!isBand && !("quantile" in column)) return [expression];
  return (isBand ? bandOf(measure) : [column.quantile]).map((quantile) => `histogram_quantile(${quantile}, ${expression})`);
}
