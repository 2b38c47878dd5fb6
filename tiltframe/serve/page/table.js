// The table of the numbers of a panel.

import { cellText } from "./numbers.js";
import { written } from "./times.js";
import { html } from "./vendor/lit-html.js";

const ROWS = 500;

export function tableOf({ rows, names, by, zone }) {
  const count = rows.length > ROWS ? `The last ${ROWS} of ${rows.length} rows` : `${rows.length} rows`;
  const caption = rows.some((row) => row.partial) ? `${count}; … is partial` : count;
  return html`<table>
    <caption>${caption}</caption>
    <thead><tr>${["start", ...by, ...names].map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${rows.slice(-ROWS).map((row) => html`<tr class=${row.partial ? "partial" : ""}><th scope="row">${written(row.at, zone)}${row.partial ? " …" : ""}</th>${by.map((key) => html`<td class="text">${row[key] ?? "(none)"}</td>`)}${names.map((name) => html`<td>${cellText(row[name])}</td>`)}</tr>`)}</tbody>
  </table>`;
}
