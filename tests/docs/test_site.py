"""The site in a browser: text is not cut at common widths of windows, pages are small, and search results have
summaries.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = ROOT / "build" / "site"  # where `make docs` makes it: pages that have not changed since are not made again
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
WIDTHS = [1280, 1440]
LOOK = """<pre id=out></pre><script>
const out = [];
const scrolls = (e, w) => e && (/auto|scroll/.test(w.getComputedStyle(e).overflowX) || scrolls(e.parentElement, w));
const look = (page, width) => new Promise((done) => {
  const frame = document.createElement("iframe");
  frame.style.width = width + "px";
  frame.src = page;
  frame.onload = () => {
    const { contentDocument: d, contentWindow: w } = frame;
    if (d.documentElement.scrollWidth > width) out.push([page, width, d.documentElement.scrollWidth]);
    for (const e of page.endsWith("/site/index.html") ? d.querySelectorAll("article pre") : [])
      if (e.scrollWidth > e.clientWidth) out.push([page, width, "code is cut", e.scrollWidth, e.clientWidth]);
    for (const e of d.querySelectorAll("article :is(p, li, pre, table, h1, h2, dt, td, img)")) {
      const right = e.getBoundingClientRect().right;
      if (right > width && !scrolls(e, w)) out.push([page, width, e.textContent.slice(0, 60)]);
    }
    done(frame.remove());
  };
  document.body.append(frame);
});
(async () => {
  for (const width of WIDTHS) for (const page of PAGES) await look(page, width);
  document.getElementById("out").textContent = "looked at all: " + JSON.stringify(out);
})();
</script>"""


LARGEST_PAGE = 300_000  # bytes of a page of the reference

pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")]


@pytest.fixture(scope="module", autouse=True)
def site():
    """Build the site."""
    pytest.importorskip("sphinx")
    build = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-d", str(ROOT / "build" / "docs")]
    subprocess.run([*build, str(DOCS), str(SITE)], check=True, capture_output=True)


def document_of(address, folder, milliseconds):
    """Open a page in the browser, and return its document after this time of the page's clock."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu"]
    command += ["--disable-web-security", "--allow-file-access-from-files"]
    command += [f"--user-data-dir={folder}/browser", "--window-size=1600,1000"]
    command += [f"--virtual-time-budget={milliseconds}", "--dump-dom", address]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


def test_no_text_is_cut_in_windows_of_common_widths(tmp_path):
    pages = [page.as_uri() for page in SITE.rglob("*.html") if "_static" not in page.parts]
    assert len(pages) > len(list(DOCS.rglob("*.md")))
    look = tmp_path / "look.html"
    look.write_text(LOOK.replace("WIDTHS", str(WIDTHS)).replace("PAGES", json.dumps(pages)))
    document = document_of(look.as_uri(), tmp_path, 600_000)
    looked = re.search("looked at all: (.*?)</pre>", document)
    assert looked, document[-2000:]
    assert json.loads(html.unescape(looked[1])) == []


def test_pages_of_the_reference_are_small():
    pages = [(SITE / source.relative_to(DOCS)).with_suffix(".html") for source in DOCS.glob("reference/**/*.md")]
    assert len(pages) > 20
    assert [str(page) for page in pages if page.stat().st_size > LARGEST_PAGE] == []


@pytest.mark.parametrize("word", ["retention", "hdr"])
def test_search_results_have_summaries(tmp_path, word):
    """Results are pages, sections, functions and options; the site is opened as files here."""
    document = document_of(f"{(SITE / 'search.html').as_uri()}?q={word}", tmp_path, 20_000)
    results = re.findall(r'<li class="kind-(\w+)[^"]*">(.*?)</li>', document, flags=re.S)
    assert {"text", "object"} <= {kind for kind, _ in results}
    with_summary = [re.search(r'<p class="context">.{10,}</p>', result) is not None for _, result in results]
    assert with_summary.count(False) <= 0.1 * len(results)
