// Notice changes of the stores: the list of stores has a tag of their versions, which is asked for again and again.

import { headers } from "./server.js";

const SECONDS = 3;

// Call back after each change, as long as `isWanted` says so and the page is visible.
export function watchChanges(isWanted, onChange) {
  let tag = null;
  const look = async () => {
    // The first look is at the start, while the page loads: a commit after that is a change.
    if (tag === null || (!document.hidden && isWanted())) {
      try {
        const answer = await fetch("/v1/stores", { headers: headers(tag ? { "If-None-Match": tag } : {}), cache: "no-store" });
        const newer = answer.headers.get("etag");
        if (answer.ok && newer && newer !== tag) {
          const isFirst = tag === null;
          tag = newer;
          if (!isFirst) onChange();
        }
      } catch {
        // The server does not answer now; the next look may succeed, and the button Refresh shows the error.
      }
    }
    setTimeout(look, SECONDS * 1000);
  };
  look();
}
