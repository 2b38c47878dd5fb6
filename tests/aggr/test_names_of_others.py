"""Names of functions in other tools raise an error that suggests tiltframe's function; the version of the package."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import aggr
import tiltframe
from tiltframe.text.measures import measure_from

HINTS = {
    "median": r"write dds\(x, quantiles=\[0.5\]\)",
    "quantile": r"write dds\(x, quantiles=\[0.9, 0.99\]\), or hdr",
    "percentile": r"write dds\(x, quantiles=\[0.9, 0.99\]\), or hdr",
    "approxQuantile": r"write dds\(x, quantiles=\[0.9, 0.99\]\), or hdr",
    "nunique": r"write count_distinct\(x\), which is exact, or approx_count_distinct\(x\)",
    "maxx": "did you mean 'max'",
}


@pytest.mark.parametrize("name", HINTS)
def test_names_of_other_tools(name):
    for error, ask in (
        (aggr.UnknownFunction, lambda: aggr.get(name)),
        (AttributeError, lambda: getattr(aggr, name)("x")),
        (aggr.UnknownFunction, lambda: measure_from(f"{name}(ms)")),
    ):
        with pytest.raises(error, match=HINTS[name]):
            ask()


def test_what_is_written_there_is_read():
    measures = {"dds(x, quantiles=[0.5])": aggr.dds("x", [0.5]), "count_distinct(x)": aggr.count_distinct("x")}
    assert {text: measure_from(text) for text in measures} == measures


def test_the_version():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert tiltframe.__version__ == project["version"]
    with pytest.raises(AttributeError, match="module 'tiltframe' has no attribute 'nope'"):
        _ = tiltframe.nope
