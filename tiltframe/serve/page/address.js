// The view is the address: the time range, and the words of each panel. Words of the second panel begin with "2.".

const SHARED = ["range", "from", "to", "compare", "live"];
const LISTS = ["by", "hide"]; // keys that have a line each, and lines that are hidden

// Return {range, from, to, compare, live, panels}; a panel is {word: text or list}.
export function readView(search = location.search) {
  const view = { panels: [] };
  for (const [name, value] of new URLSearchParams(search)) {
    if (SHARED.includes(name)) {
      view[name] = value;
      continue;
    }
    const [, number, word] = /^(?:([2-9]|[1-9]\d)\.)?(.*)$/s.exec(name);
    const index = Number(number ?? 1) - 1;
    const panel = (view.panels[index] ??= {});
    if (LISTS.includes(word)) panel[word] = value ? [...(panel[word] ?? []), value] : [];
    else panel[word] = value;
  }
  view.panels = view.panels.filter(Boolean);
  return view;
}

export function textOf(view) {
  const words = new URLSearchParams();
  view.panels.forEach((panel, index) => {
    const prefix = index ? `${index + 1}.` : "";
    for (const [word, value] of Object.entries(panel)) {
      for (const each of [value].flat()) {
        if (isSet(each)) words.append(prefix + word, each);
      }
    }
  });
  for (const word of SHARED) {
    if (isSet(view[word])) words.set(word, view[word]);
  }
  const text = words.toString();
  return text ? `?${text}` : "/";
}

const isSet = (value) => value !== null && value !== undefined && value !== "";

// Return the view with other words of the time range.
export const withShared = (view, changes) => ({ ...view, ...changes });

// Return the view with other words of one panel.
export function withPanel(view, index, changes) {
  const panels = [...view.panels];
  panels[index] = { ...panels[index], ...changes };
  return { ...view, panels };
}

export const withoutPanel = (view, index) => ({ ...view, panels: view.panels.filter((_, at) => at !== index) });
