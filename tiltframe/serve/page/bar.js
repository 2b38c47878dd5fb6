// The header: where one is, the time range, refreshing and sharing.

import { select } from "./options.js";
import { RANGES } from "./ranges.js";
import { written } from "./times.js";
import { html } from "./vendor/lit-html.js";

const COMPARED = [["", "nothing"], ["period", "previous period"], ["day", "previous day"], ["week", "previous week"], ["month", "previous 4 weeks"]];
const MOVES = [["earlier", "← Earlier", "ArrowLeft"], ["in", "Zoom in", "+"], ["out", "Zoom out", "-"], ["later", "Later →", "ArrowRight"], ["all", "All", "0"]];

export function barOf({ view, isLive, message, page }) {
  const isChosen = Boolean(view.from || view.to);
  const choices = isChosen ? [["chosen", "as chosen"], ...RANGES] : RANGES;
  return html`<header>
    <a class="brand" href="/"><svg viewBox="0 0 24 24" width="22" height="22" aria-hidden="true"><path d="M3 20V14M8 20V10M13 20V6M18 20V3" stroke="currentColor" stroke-width="3.4" stroke-linecap="round"></path></svg><h1>tiltframe</h1></a>
    <div class="bar">
      ${select({ id: "range", label: "Range", choices, value: isChosen ? "chosen" : view.range ?? "", onChange: (range) => page.changeShared({ range, from: null, to: null }) })}
      <button type="button" @click=${() => page.load()}>Refresh</button>
      <button type="button" aria-pressed=${isLive ? "true" : "false"} title="Show new data when it arrives" @click=${() => page.toggleLive()}>Live</button>
      <button type="button" @click=${() => page.share()}>Share</button>
      <a class="api" href="/api">API</a>
    </div>
    <p class="message" role="status" id="message">${message}</p>
  </header>`;
}

// The tools for the time range that a panel needs: its ends, moves and comparison.
export function timeToolsOf({ view, shown, page }) {
  const zone = shown?.question.store.timezone;
  const end = (word) => (shown ? written(shown.range[word], zone) : view[word] ?? "");
  const chosen = (word) => page.view[word] ?? end(word); // the answer to an earlier change may not be shown yet
  const input = (word, label) => html`<label>${label}<input id=${word} data-value=${end(word)} size="25" spellcheck="false" autocomplete="off" @change=${(event) => page.changeShared({ range: null, from: chosen("from"), to: chosen("to"), [word]: event.target.value })}></label>`;
  return html`<div class="time" role="group" aria-label="Time">
    ${input("from", "From")}${input("to", "To")}
    ${select({ id: "compare", label: "Compare with", choices: COMPARED, value: view.compare ?? "", disabled: Boolean(shown?.heat), onChange: (compare) => page.changeShared({ compare }) })}
    <div id="moves" role="group" aria-label="Move through time">${MOVES.map(([move, text, key]) => html`<button type="button" aria-keyshortcuts=${key} @click=${() => page.move(move)}>${text}</button>`)}</div>
  </div>`;
}
