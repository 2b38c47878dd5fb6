// The legend: each line with its look, its value at the cursor and in the complete range, and the change since an earlier range.

import { lookOf } from "./colours.js";
import { changeText, compact } from "./numbers.js";
import { html, svg } from "./vendor/lit-html.js";

function swatch(question, line) {
  const { colour, dash, width } = lookOf(question, line);
  return html`<svg width="26" height="10" aria-hidden="true">${svg`<line x1="0" x2="26" y1="5" y2="5" stroke=${`var(--${colour})`} stroke-width=${width + 0.6} stroke-dasharray=${dash.join(" ") || "none"}></line>`}</svg>`;
}

function nameOf(question, line) {
  const result = question.isBand && !line.isEarlier ? line.name.slice(question.measure.name.length + 1) : line.name;
  return [line.label, line.label && !line.isEarlier ? null : line.isEarlier ? line.earlier : result].filter(Boolean).join(", ");
}

// `onToggle` hides or shows a line; `onOnly` filters by the keys of a line.
export function legendOf({ question, series, compared, hidden, onToggle, onOnly }) {
  const heads = ["", "at cursor", "whole range", ...(compared ? ["before", "change"] : []), ...(question.by.length ? [""] : [])];
  return html`<table class="legend ${compared ? "compared" : ""}">
    <caption class="visually-hidden">Lines of the chart</caption>
    <thead><tr>${heads.map((text, i) => (text ? html`<th scope="col">${text}</th>` : html`<td>${i ? "" : question.by.join(", ")}</td>`))}</tr></thead>
    <tbody>${series.lines.map((line, i) => html`<tr class=${hidden.has(i) ? "off" : ""}>
      <th scope="row"><button type="button" class="line" aria-pressed=${hidden.has(i) ? "false" : "true"} @click=${() => onToggle(i)}>${swatch(question, line)} ${nameOf(question, line)}</button></th>
      <td data-cursor=${i}></td>
      <td class="total">${compact(line.total)}</td>
      ${compared ? html`<td>${line.isEarlier ? "" : compact(line.before)}</td><td class="change">${line.isEarlier ? "" : changeText(line.before, line.total)}</td>` : ""}
      ${question.by.length ? html`<td>${line.isEarlier ? "" : html`<button type="button" class="quiet" aria-label=${`Only ${line.label}`} @click=${() => onOnly(line)}>only</button>`}</td>` : ""}
    </tr>`)}</tbody>
  </table>
  ${question.isBand ? html`<p class="hint"><i class="band"></i>from p5 to p95</p>` : ""}`;
}

export function showAtCursor(place, u) {
  for (const cell of place.querySelectorAll("[data-cursor]")) {
    const values = u.data[Number(cell.dataset.cursor) + 1];
    const value = u.cursor.idx === null || u.cursor.idx === undefined ? null : values?.[u.cursor.idx];
    cell.textContent = value === null || value === undefined ? "" : compact(value);
  }
}
