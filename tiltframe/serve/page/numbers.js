// Numbers as people read them.

// Return the number of a value, which the server writes as text if a double cannot hold it.
export const number = (value) => (value === null || value === undefined ? null : Number(value));

export function compact(value) {
  if (value === null || value === undefined) return "·";
  const notation = Math.abs(value) >= 1e7 ? "compact" : "standard";
  return value.toLocaleString("en", { maximumSignificantDigits: 5, notation });
}

// Return the text of a result in a cell: a number, a text, or a dot for null.
export function cellText(value) {
  if (value === null || value === undefined) return "·";
  return typeof value === "number" ? compact(value) : String(value);
}

export function changeText(before, after) {
  if (before === null || after === null || !before) return "·";
  const percent = (after / before - 1) * 100;
  if (!Number.isFinite(percent)) return "·";
  return `${percent > 0 ? "+" : ""}${percent.toLocaleString("en", { maximumFractionDigits: 1 })} %`;
}
