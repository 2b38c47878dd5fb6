"""Rejected names and keys: names that differ only by case, constant keys, periods of pandas, and fractions of keys."""

from __future__ import annotations

import pyarrow as pa
import pytest

import aggr
from tiltframe import TiltFrame, explain, rollup

ROWS = pa.table({"ts": [0, 1000], "service.name": ["a", "b"], "m": ["2024-01", "2024-02"]})


def frame(keys, **measures):
    return TiltFrame(["1d"], "ts", measures or {"n": aggr.count()}, keys)


@pytest.mark.parametrize(("keys", "measures"), [(["N"], ["n"]), ([], ["host", "Host"]), (["a", "A"], ["n"])])
def test_names_that_differ_only_by_case(keys, measures):
    with pytest.raises(ValueError, match=r"differ only by case.*rename one"):
        frame(keys, **{name: aggr.count() for name in measures})


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ('"service.name"', "`service.name`"),
        ("'a'", "`a`"),
        ("1 + 1", None),
        ("'a' IS NULL", None),
        ("'a' || 'b'", None),
    ],
)
def test_a_key_that_reads_no_column(text, advice):
    with pytest.raises(ValueError, match=r"is the constant .*, but a key must use a column") as refused:
        rollup(ROWS, frame({"service": text}))
    assert str(refused.value).partition("write ")[2] == (f"{advice} for the column" if advice else "")


def test_periods_of_pandas():
    rows = ROWS.to_pandas()
    rows["m"] = rows["m"].astype("period[M]")
    for refused_frame in (frame(["m"]), frame([], last=aggr.last("m")), frame([], n=aggr.count_distinct("m"))):
        with pytest.raises(TypeError, match=r"Period.*\.astype\(str\)"):
            rollup(rows, refused_frame)
    rows["m"] = rows["m"].astype(str)
    assert set(rollup(rows, frame(["m"]))["m"].to_pylist()) == {"2024-01", "2024-02"}


def test_a_part_of_a_key():
    with pytest.raises(ValueError, match=r"keys must be a whole number of at least 1; got 0\.5"):
        explain(ROWS, frame([]), keys=0.5)
