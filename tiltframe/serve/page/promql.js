// The query of a panel in PromQL, if merged states answer it.

import { filtersOf } from "./conditions.js";
import { bandOf, quantilesOf } from "./question.js";
import { duration } from "./times.js";

function merged({ store, panel, by }, { metric, aggregation, function: name }, length) {
  const labels = filtersOf(store, panel).map(({ key, value }) => [key.label, String(value ?? "")]);
  const matchers = [["store", store.name], ...labels].map(([label, value]) => `${label}=${JSON.stringify(value)}`);
  const kept = by.length ? ` by (${by.map((name) => store.keys.find((key) => key.name === name).label).join(", ")})` : "";
  return `${aggregation}${kept} (${name}(${metric}{${matchers.join(", ")}}[${duration(length)}]))`;
}

// Return the query of the histogram of all keys together.
export function histogramQuery(question, length) {
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
