"""The pages for users of Spark are followed word for word with the installed version of PySpark."""

from __future__ import annotations

import re
from importlib.metadata import version

import pytest

from tests.docs.following import ROOT, follow
from tests.docs.pages import blocks

GUIDES = (
    "how-to/benchmark-on-spark.md",
    "how-to/existing-job.md",
    "how-to/percentile-approx.md",
    "how-to/distinct-counts.md",
    "how-to/nightly-rollup.md",
)
EXAMPLES = ("spark.md", "streams.md")
OTHERWISE_FOLLOWED = {"installing.md"}  # its sections, by `make extras`


def newest_version():
    """Return the version of PySpark in constraints.txt."""
    (line,) = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("pyspark==")]
    return line.removeprefix("pyspark==")


# With the newest version, pytest runs the examples as doctests.
PARTS = {"guides": GUIDES} if version("pyspark") == newest_version() else {"guides": GUIDES, "examples": EXAMPLES}


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("part", PARTS)
def test_pages_on_spark(part):
    follow(*PARTS[part])


def test_all_pages_that_start_spark_are_followed_with_old_versions():
    starts = {
        str(page.relative_to(ROOT / "docs"))
        for page in (ROOT / "docs").rglob("*.md")
        if re.search(r"SparkSession\.builder\.master|bench --spark", page.read_text())
    }
    assert starts == {*GUIDES, *EXAMPLES, *OTHERWISE_FOLLOWED}


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("With PySpark 4.1 or newer:", [False, False, True, True]),
        ("In SQL before PySpark 4.1:", [True, True, False, False]),
        ("Before PySpark 4.0:", [True, False, False, False]),
        ("PySpark 4.1 or newer has it.", [True, True, True, True]),
        ("PySpark 4.1 or newer:\n\nThen:", [True, True, True, True]),
    ],
)
def test_blocks_for_other_versions_are_skipped(before, expected):
    (block,) = blocks(f"# A page\n\n{before}\n\n```python\n>>> 1\n1\n\n```\n")
    assert [block.is_for(pyspark) for pyspark in ("3.5.9", "4.0.5", "4.1.0", None)] == expected
