// SQL conditions on keys, from the filters of a panel and from the keys that are drawn.

const PLAIN = /^[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)*$/; // a name, or the path of a field, such as tags.host
const UNQUOTED = /int|double|float|decimal|bool/;
const CONSTANT = /^(-?\d+(\.\d+)?(e[+-]?\d+)?|true|false)$/i;

// Return a name as it is written in conditions. Double quotes enclose texts, and the server names some fields in backquotes.
export const quotedName = (name) => (PLAIN.test(name) || name.startsWith("`") ? name : `\`${name.replaceAll("`", "``")}\``);

function literal(key, value) {
  const text = String(value);
  return UNQUOTED.test(key.type) && CONSTANT.test(text) ? text : `'${text.replaceAll("'", "''")}'`;
}

export function equals(key, value) {
  return value === null ? `${quotedName(key.name)} IS NULL` : `${quotedName(key.name)} = ${literal(key, value)}`;
}

export const allOf = (conditions) => conditions.filter(Boolean).join(" AND ") || null;

// Return the value of a key in an address: JSON of a text, a number, a boolean or null. Any other text is its own value.
export function valueOfFilter(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null ? text : value;
  } catch {
    return text;
  }
}

// Return the keys of a panel that have a filter, with the values.
export function filtersOf(store, panel) {
  return store.keys.filter((key) => panel[`key.${key.name}`]).map((key) => ({ key, value: valueOfFilter(panel[`key.${key.name}`]) }));
}

export function conditionOf(store, panel) {
  const typed = panel.where ? (/\bor\b/i.test(panel.where) ? `(${panel.where})` : panel.where) : null;
  return allOf([...filtersOf(store, panel).map(({ key, value }) => equals(key, value)), typed]);
}

// Return the condition of the rows of some combinations of keys.
export function anyOf(keys, combinations) {
  if (keys.length > 1) {
    const each = combinations.map((values) => `(${allOf(values.map((value, i) => equals(keys[i], value)))})`);
    return `(${each.join(" OR ")})`;
  }
  const [key] = keys;
  const values = combinations.map(([value]) => value);
  const known = values.filter((value) => value !== null);
  const listed = known.length ? `${quotedName(key.name)} IN (${known.map((value) => literal(key, value)).join(", ")})` : null;
  if (known.length === values.length) return listed;
  return listed ? `(${listed} OR ${equals(key, null)})` : equals(key, null);
}
