"""The site in a browser: at common widths of windows no page is wider, and what is too wide scrolls in itself."""

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
WIDTHS = [1280, 1366, 1440]
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


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_no_text_is_cut_in_windows_of_common_widths(tmp_path):
    pytest.importorskip("sphinx")
    build = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-d", str(ROOT / "build" / "docs")]
    subprocess.run([*build, str(DOCS), str(SITE)], check=True, capture_output=True)
    pages = [page.as_uri() for page in SITE.rglob("*.html") if "_static" not in page.parts]
    assert len(pages) > len(list(DOCS.rglob("*.md")))
    look = tmp_path / "look.html"
    look.write_text(LOOK.replace("WIDTHS", str(WIDTHS)).replace("PAGES", json.dumps(pages)))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu"]
    command += ["--disable-web-security", "--allow-file-access-from-files"]
    command += [f"--user-data-dir={tmp_path}/browser", "--window-size=1600,1000", "--virtual-time-budget=600000"]
    done = subprocess.run([*command, "--dump-dom", look.as_uri()], capture_output=True, text=True, check=True)
    looked = re.search("looked at all: (.*?)</pre>", done.stdout)
    assert looked, done.stderr[-2000:]
    assert json.loads(html.unescape(looked[1])) == []
