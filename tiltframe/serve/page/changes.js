// Notice changes of the stores. If the page shows one store, the server pushes its changes over one connection. Otherwise,
// or if the server has no place for another listener, the page asks for the tag of the list of stores again and again.

import { headers } from "./server.js";

const SECONDS = 3; // between two questions, and between two changes that are shown
const REFUSED_SECONDS = 30; // until the next attempt after the server had no place for a listener
const SILENT_SECONDS = 45; // the server writes at least each 15 seconds; a longer silence is a lost connection

const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

// Call `onChange` after each change, as long as `isWanted` says so and the page is visible. `shownStore` returns the
// description of the only store of the page, or undefined if there are several stores or none.
export async function watchChanges({ isWanted, shownStore, onChange }) {
  const isActive = () => !document.hidden && isWanted();
  let tag = await tagOfStores(); // at the start, while the page loads: a commit after that is a change
  let nextAttempt = 0;
  for (;;) {
    const store = shownStore();
    if (store && isActive() && Date.now() >= nextAttempt) {
      const isAccepted = await followWithLock(store, { isActive: () => isActive() && shownStore()?.name === store.name, onChange });
      if (!isAccepted) nextAttempt = Date.now() + REFUSED_SECONDS * 1000;
    }
    await sleep(SECONDS);
    if (!isActive()) continue;
    const newer = await tagOfStores(tag);
    if (newer && tag && newer !== tag) await onChange();
    tag = newer ?? tag;
  }
}

// Return the tag of the versions of all stores, or null if it is the earlier one, or if the server does not answer.
async function tagOfStores(earlier = null) {
  try {
    const answer = await fetch("/v1/stores", { headers: headers(earlier ? { "If-None-Match": earlier } : {}), cache: "no-store" });
    return answer.ok ? answer.headers.get("etag") : null;
  } catch {
    return null; // a later question may succeed, and the button Refresh shows the error
  }
}

// Follow a store unless another tab of this browser follows one: a browser has six connections to a server in all.
async function followWithLock(store, wanted) {
  if (!navigator.locks) return follow(store, wanted);
  return navigator.locks.request("changes", { ifAvailable: true }, (lock) => (lock ? follow(store, wanted) : true));
}

// Read the changes of a store until they are not wanted, the server ends them, or the connection is lost. Return false if
// the server refuses them.
async function follow(store, { isActive, onChange }) {
  const connection = new AbortController();
  let heard = Date.now();
  const check = () => (!isActive() || Date.now() - heard > SILENT_SECONDS * 1000) && connection.abort();
  const timer = setInterval(check, 500);
  document.addEventListener("visibilitychange", check);
  try {
    const coarsest = encodeURIComponent(store.levels.at(-1).level); // a change of any level is one of the coarsest, too
    const path = `/v1/stores/${encodeURIComponent(store.name)}/changes?per=${coarsest}`;
    const answer = await fetch(path, { headers: headers(), cache: "no-store", signal: connection.signal });
    if (!answer.ok) return false;
    let version = String(store.version);
    let changed = Promise.resolve();
    let isWaiting = false;
    const showLatest = async () => {
      isWaiting = false;
      if (isActive()) await onChange();
      await sleep(SECONDS);
    };
    for await (const line of linesOf(answer.body)) {
      heard = Date.now();
      if (!line.startsWith("id: ") || line === `id: ${version}`) continue;
      version = line.slice(4);
      if (isWaiting) continue; // the change that waits shows this version, too
      isWaiting = true;
      changed = changed.then(showLatest);
    }
  } catch {
    // The page asks for changes until the next attempt.
  } finally {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", check);
    connection.abort();
  }
  return true;
}

async function* linesOf(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    yield* lines;
  }
}
