// The controls of a panel: what is measured, how it is drawn, split and filtered.

import { filtersOf, valueOfFilter } from "./conditions.js";
import { canBeRate, isNumeric, numericColumns, quantilesOf } from "./question.js";
import { html } from "./vendor/lit-html.js";

// A select whose value is set after the page is rendered, when its options exist.
export function select({ id, label, choices, value, onChange, disabled = false }) {
  return html`<label>${label}<select id=${id} aria-label=${label} data-value=${value} ?disabled=${disabled} @change=${(event) => onChange(event.target.value)}>
    ${choices.map(([each, text]) => html`<option value=${each}>${text}</option>`)}
  </select></label>`;
}

export function optionsOf({ question, stores, id, keyChoices, above, onOpenFilters, onThreshold, onChange }) {
  const { store, panel, measure, column, isBand, isHeat, by } = question;
  const isSketch = quantilesOf(measure).length > 0;
  const columns = [...(isSketch ? [["band", "quantile band"]] : []), ...measure.columns.map((each) => [each.name, each.name])];
  return html`
    <div class="controls">
      ${select({ id: id("store"), label: "Store", choices: stores.map((name) => [name, name]), value: store.name, onChange: (name) => onChange({ store: name }, true) })}
      ${select({ id: id("measure"), label: "Measure", choices: store.measures.map((each) => [each.name, each.name]), value: measure.name, onChange: (name) => onChange({ measure: name, column: null, as: null }) })}
      ${select({ id: id("column"), label: "Result", choices: columns, value: isBand ? "band" : column.name, disabled: isHeat, onChange: (name) => onChange(name === "band" ? { column: null, by: [], as: null } : { column: name }) })}
      ${select({ id: id("as"), label: "As", choices: readingsOf(question), value: panel.as ?? "", disabled: isHeat || isBand || !isNumeric(column), onChange: (as) => onChange({ as }) })}
      ${select({ id: id("drawn"), label: "Drawn as", choices: [["", "lines"], ["heat", "heat map"]], value: isHeat ? "heat" : "", disabled: !measure.buckets, onChange: (drawn) => onChange({ drawn }) })}
      ${select({ id: id("lines"), label: "Lines", choices: linesOf(panel), value: panel.lines ?? "", disabled: !by.length || isHeat, onChange: (lines) => onChange({ lines }) })}
      <label>Threshold<input id=${id("above")} inputmode="decimal" placeholder="none" size="7" data-value=${above} @input=${(event) => onThreshold(event.target.value)}></label>
    </div>
    ${store.keys.length ? html`<div class="split" role="group" aria-label="A line for each" id=${id("by")}><span>A line for each</span>
      ${store.keys.map((key) => html`<button type="button" class="chip" aria-pressed=${by.includes(key.name) ? "true" : "false"} ?disabled=${isHeat}
        @click=${() => onChange({ by: by.includes(key.name) ? by.filter((name) => name !== key.name) : [...by, key.name] })}>${key.name}</button>`)}
    </div>` : ""}
    ${filters({ question, id, keyChoices, onOpenFilters, onChange })}`;
}

function readingsOf({ store, column }) {
  const rate = canBeRate(column) ? [["rate", "per second"]] : [];
  const others = numericColumns(store).filter((each) => each.name !== column.name);
  return [["", "value"], ...rate, ...others.map((each) => [`over:${each.name}`, `divided by ${each.name}`])];
}

function linesOf({ lines }) {
  const choices = [["", "greatest 10"], ["25", "greatest 25"], ["100", "greatest 100"], ["-10", "least 10"], ["all", "all"]];
  return !lines || choices.some(([value]) => value === lines) ? choices : [...choices, [lines, lines.startsWith("-") ? `least ${lines.slice(1)}` : `greatest ${lines}`]];
}

function filters({ question, id, keyChoices, onOpenFilters, onChange }) {
  const { store, panel } = question;
  const count = filtersOf(store, panel).length + (panel.where ? 1 : 0);
  return html`<details class="filters" id=${id("filters")} @toggle=${(event) => event.target.open && onOpenFilters()}>
    <summary>Filters${count ? ` (${count})` : ""}</summary>
    <div class="controls">
      ${store.keys.map((key) => filter({ key, chosen: panel[`key.${key.name}`], known: keyChoices.get(key.name), onChange }))}
      <label>Condition<input placeholder="host LIKE 'web-%'" data-value=${panel.where ?? ""} @change=${(event) => onChange({ where: event.target.value })}></label>
      ${count ? html`<button type="button" @click=${() => onChange({ where: null, ...Object.fromEntries(store.keys.map((key) => [`key.${key.name}`, undefined])) })}>Clear filters</button>` : ""}
    </div>
  </details>`;
}

function filter({ key, chosen, known, onChange }) {
  const text = (value) => (value === null ? "(none)" : String(value));
  const values = (known?.values ?? []).map((value) => [JSON.stringify(value), text(value)]);
  const isListed = !chosen || values.some(([value]) => value === chosen);
  const choices = [["", known?.more ? `all, or one of the first ${values.length}` : "all"], ...values, ...(isListed ? [] : [[chosen, text(valueOfFilter(chosen))]])];
  return select({ id: "", label: key.name, choices, value: chosen ?? "", onChange: (value) => onChange({ [`key.${key.name}`]: value || undefined }) });
}
