"""The uneven days of `benchmarks.scale_shapes`: the tasks of Spark write the states of local code."""

from __future__ import annotations

import pyarrow.dataset as ds
import pytest

import spark_udaf as su
from benchmarks.scale_shapes import SHAPES
from tests.engines import digests_of_store
from tiltframe import FrameStore

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 24_000


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.long
def test_every_shape_gives_the_same_bits(name, spark, tmp_path):
    shape = SHAPES[name]
    assert shape.write(tmp_path / "rows", 1, ROWS) == pytest.approx(ROWS, rel=0.01)
    rows = ds.dataset(tmp_path / "rows").to_table()
    stores = [FrameStore(tmp_path / kind, shape.frame) for kind in ("spark", "local")]
    su.rollup_into(su.scan_parquet(spark, str(tmp_path / "rows"), rows_per_task=3000), stores[0], "w", 1)
    stores[1].append_rows(rows, "w", 1)
    assert digests_of_store(stores[0]) == digests_of_store(stores[1])
    assert counts_of(rows, "host")[0] == pytest.approx(
        ROWS * max(shape.first_key_share, 1 / shape.keys), rel=0.1, abs=20
    )


def counts_of(rows, column):
    return sorted(rows[column].value_counts().field("counts").to_pylist(), reverse=True)
