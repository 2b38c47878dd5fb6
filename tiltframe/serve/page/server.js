// Requests to the server, with its token if it asks for one.

export class Unauthorized extends Error {}

export function headers(more = {}) {
  const token = sessionStorage.getItem("token");
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

export async function fetchJSON(path) {
  let answer;
  try {
    answer = await fetch(path, { headers: headers() });
  } catch {
    throw new Error("The server does not answer. Check that it runs, and try again.");
  }
  const body = await answer.json().catch(() => ({ error: `The server answers ${answer.status} without an explanation.` })); // such as for a long address
  if (answer.status === 401) throw new Unauthorized(body.error);
  if (!answer.ok || body.error) throw new Error(body.error);
  return body;
}

export const storeOf = (name) => fetchJSON(`/v1/stores/${encodeURIComponent(name)}`);

export const keyValues = (store, key) => fetchJSON(`/v1/stores/${store.name}/keys/${encodeURIComponent(key.name)}`);

// Return the parameters of a query: a list repeats its parameter, and null is left out.
export function searchOf(words) {
  const search = new URLSearchParams();
  for (const [word, value] of Object.entries(words)) {
    if (value === null || value === undefined) continue;
    const values = Array.isArray(value) ? value : [value];
    for (const each of values.length ? values : [""]) search.append(word, each);
  }
  return search;
}

// Return the answer of a query; each row also has `at` and `end`, the seconds of its window.
export async function ask(words) {
  const answer = await fetchJSON(`/v1/query?${searchOf(words)}`);
  for (const row of answer.rows) {
    row.at = Date.parse(row.window_start) / 1000;
    row.end = Date.parse(row.window_end) / 1000;
  }
  return answer;
}
