"""A Sphinx extension that shows a summary for each search result: the first sentences of a page, section or docstring.

Sphinx itself shows the text around the word, only for pages, and only if a server sends the pages. The summaries are in
a script of the site, so that they also appear if the site is opened as files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

LONGEST = 160  # characters
SCRIPT = "search_summaries.js"

SHOW = """
const showSummaries = (results) => {
  for (const result of results.querySelectorAll(":scope > li:not(.has-summary)")) {
    result.classList.add("has-summary");
    const target = result.querySelector("a").getAttribute("href");
    const summary = SUMMARIES[target] ?? SUMMARIES[target.split("#")[0]];
    if (!summary) continue;
    const paragraph = document.createElement("p");
    paragraph.className = "context";
    paragraph.textContent = summary;
    result.append(paragraph);
  }
};
document.addEventListener("DOMContentLoaded", () => {
  const results = document.getElementById("search-results");
  new MutationObserver(() => results.querySelectorAll("ul.search").forEach(showSummaries))
    .observe(results, { childList: true, subtree: true });
});
"""


def shorten(text: str) -> str:
    """Return a text on one line. A longer text than `LONGEST` characters is cut between two words."""
    text = " ".join(text.split())
    if len(text) <= LONGEST:
        return text
    return text[:LONGEST].rsplit(" ", 1)[0].rstrip(",;:") + " …"


def first_paragraph(parent: nodes.Element) -> str:
    """Return the first paragraph among the children of an element, shortened, or "" if there is none before the first
    documented name.
    """
    for child in parent.children:
        if isinstance(child, nodes.paragraph) and child.astext().strip():
            return shorten(child.astext())
        if isinstance(child, addnodes.desc):
            return ""
    return ""


def summaries_of(page: nodes.document, address: str) -> dict[str, str]:
    """Return address → summary for a page, its sections and the names that it documents. ``address`` is that of the
    page.
    """
    summaries: dict[str, str] = {}
    for section in page.findall(nodes.section):
        summary = first_paragraph(section)
        if not summary:
            continue
        summaries.setdefault(address, summary)
        summaries.update({f"{address}#{identifier}": summary for identifier in section["ids"]})
    for description in page.findall(addnodes.desc):
        content = description.next_node(addnodes.desc_content)
        summary = first_paragraph(content) if content is not None else ""
        for signature in description.findall(addnodes.desc_signature):
            if signature.parent is description and summary:
                summaries.update({f"{address}#{identifier}": summary for identifier in signature["ids"]})
    return summaries


def write_summaries(app: Sphinx, error: Exception | None) -> None:
    """Write the script with the summaries of all pages, after a build of HTML."""
    if error is not None or app.builder.format != "html":
        return
    summaries: dict[str, str] = {}
    for name in sorted(app.env.found_docs):
        summaries.update(summaries_of(app.env.get_doctree(name), app.builder.get_target_uri(name)))
    script = f"const SUMMARIES = {json.dumps(summaries, ensure_ascii=False)};\n{SHOW}"
    Path(app.outdir, "_static", SCRIPT).write_text(script, encoding="utf-8")


def add_script(app: Sphinx, page: str, *_: Any) -> None:
    """Add the script with the summaries to the page of search results."""
    if page == "search":
        app.add_js_file(SCRIPT)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension with Sphinx."""
    app.connect("html-page-context", add_script)
    app.connect("build-finished", write_summaries)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
