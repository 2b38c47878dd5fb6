// The query of a panel as Python, as a command and for curl.

import { searchOf } from "./server.js";

const quote = (text) => `'${String(text).replaceAll("'", "'\\''")}'`;

export function pythonOf(words, { isRate }) {
  const [name, ...rest] = words.measures.split("=");
  const text = rest.join("=");
  const value = /^\w+\(/.test(text) ? `aggr.${text}` : JSON.stringify(text);
  const measures = text ? `measures={${JSON.stringify(name)}: ${value}}` : `measures=[${JSON.stringify(name)}]`;
  const option = (word) => (words[word] === null ? "" : `, ${word}=${JSON.stringify(words[word])}`);
  const rate = isRate ? "# the page divides each value by the seconds of its window\n" : "";
  return `import aggr\nfrom tiltframe import FrameStore\n\nstore = FrameStore(${JSON.stringify(words.store)})  # or its address\n${rate}` +
    `store.query(points=${words.points}${option("within")}${option("where")}, ${measures}, keys=${JSON.stringify(words.keys)}, flat=True)`;
}

export function commandOf(words) {
  const option = (word) => (words[word] === null ? "" : ` --${word}=${quote(words[word])}`);
  const keys = words.keys.map((key) => ` --key ${quote(key)}`).join("") || " --no-keys";
  return `tiltframe query ${quote(words.store)} --points ${words.points}${option("within")}${option("where")} --measure ${quote(words.measures)}${keys} --flat`;
}

export function curlOf(words) {
  const bearer = sessionStorage.getItem("token") ? ' -H "Authorization: Bearer $TOKEN"' : "";
  return `curl -s${bearer} ${quote(`${location.origin}/v1/query?${searchOf(words)}`)}`;
}
