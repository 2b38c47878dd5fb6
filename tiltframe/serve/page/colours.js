// Colours and dashes of lines, which the style sheet defines for light and dark.

const COLOURS = 10;
const DASHES = [[], [8, 4], [2, 3], [8, 3, 2, 3]];

export const themed = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// Return {colour, dash, width} of a line: quantiles have colours of their own, keys one each.
export function lookOf(question, line) {
  if (question.isBand) return line.isEarlier ? { colour: "earlier", dash: [8, 4], width: 1.5 } : quantileLook(line.name);
  const colour = `line-${line.colour % COLOURS}`;
  if (line.isEarlier) return { colour: question.by.length ? colour : "earlier", dash: [7, 4], width: 1.4 };
  return { colour, dash: DASHES[Math.floor(line.colour / COLOURS) % DASHES.length], width: 1.8 };
}

function quantileLook(name) {
  const suffix = /_p([0-9]+(?:_[0-9]+)?)$/.exec(name)[1].replace("_", ".");
  const percent = Number(suffix);
  if (percent === 50) return { colour: "line-0", dash: [], width: 2.2 };
  if (percent === 5) return { colour: "quantile-low", dash: [], width: 1.2 };
  if (percent === 95) return { colour: "quantile-high", dash: [], width: 1.6 };
  if (percent > 95) return { colour: "quantile-top", dash: [6, 3], width: 1.8 };
  return { colour: percent > 50 ? "line-4" : "line-5", dash: [2, 3], width: 1.6 };
}
