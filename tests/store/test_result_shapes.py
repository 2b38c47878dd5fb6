"""Results of all nested shapes in every output: comparison of bits, JSON, CSV, stores, views of PostgreSQL
and plots.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import aggr
from aggr.arrow.bit_equality import same_bits
from aggr.testing.laws import check
from tests.result_shapes import FUNCTIONS, SHAPES, expected
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.text.results import csv_cells, json_lines

ROWS = {"a": [1.0, -2.5, 4.0], "b": [0.5]}
TABLE = pa.table(
    {
        "ts": pa.array([0, 1, 2, 3], pa.timestamp("us", "UTC")),
        "k": [k for k, values in ROWS.items() for _ in values],
        "x": [value for values in ROWS.values() for value in values],
    }
)


@pytest.fixture(autouse=True)
def registered():
    for function in FUNCTIONS.values():
        aggr.register(function)
    yield
    for function in FUNCTIONS.values():
        aggr.unregister(function.name)


def frame_of(*shapes: str) -> TiltFrame:
    return TiltFrame(["1s"], "ts", {shape: aggr.Measure(FUNCTIONS[shape](), "x") for shape in shapes}, ["k"])


def as_json(value, dtype):
    """Write a value as JSON has it, by a naive walk: maps are objects."""
    if value is None:
        return None
    if pa.types.is_map(dtype):
        return {str(key): as_json(item, dtype.item_type) for key, item in value}
    if pa.types.is_struct(dtype):
        return {field.name: as_json(value[field.name], field.type) for field in dtype}
    return [as_json(part, dtype.value_type) for part in value] if pa.types.is_list(dtype) else value


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
def test_functions_of_every_shape_obey_the_laws(shape):
    check(FUNCTIONS[shape](), pa.float64(), rounds=6)


@pytest.mark.parametrize("shape", SHAPES)
def test_slices_of_results_have_the_bits_of_copies(shape):
    dtype, make = SHAPES[shape]
    values = [make(float(i), float(i + 1), i) if i % 3 else None for i in range(9)]
    column = pa.array(values, dtype)
    for start in range(9):
        copy = pa.array(values[start : start + 4], dtype)
        assert same_bits(column.slice(start, 4), copy)
        inside = pa.StructArray.from_arrays([column], names=["inside"]).slice(start, 4)
        assert same_bits(inside, pa.StructArray.from_arrays([copy], names=["inside"]))
    other = pa.array([make(0.5, 1.0, 7)], dtype)
    assert same_bits(column.slice(1, 1), other) == (shape == "empty_map")


@pytest.mark.store
@pytest.mark.parametrize("shape", SHAPES)
def test_a_store_returns_results_of_every_shape(shape, place):
    frame = frame_of(shape)
    store = FrameStore(place, frame)
    store.append(rollup(TABLE, frame), "me", 0)
    results = store.query(per="1s")
    assert results.column(shape).to_pylist() == [expected(shape, values) for values in ROWS.values()]
    flat = store.query(per="1s", flat=True)
    names = [name for name in flat.column_names if name.startswith(shape)]
    if not pa.types.is_struct(SHAPES[shape][0]):
        assert names == [shape]
    else:
        assert len(names) == (2 if shape == "record_with_map" else 4)
    dtype = SHAPES[shape][0]
    exact = [as_json(expected(shape, values), dtype) for values in ROWS.values()]
    assert [json.loads(line)[shape] for line in json_lines(results).splitlines()] == exact
    if not pa.types.is_struct(dtype):
        cells = csv_cells(flat).column(shape).to_pylist()
        assert [json.loads(cell) for cell in cells] == exact


@pytest.mark.store
@pytest.mark.slow
def test_a_view_of_postgresql_has_results_of_every_shape(postgres):
    from tiltframe.store.backends.postgres.session import session

    frame = frame_of(*SHAPES)
    store = FrameStore(postgres, frame, name="shapes")
    store.append(rollup(TABLE, frame), "me", 0)
    store.export()
    with session(postgres) as db:
        rows = db.ask("SELECT * FROM shapes_1s_current ORDER BY k").to_pylist()
        (comment,) = db.rows("SELECT obj_description('shapes_1s_current'::regclass) AS text")
        (nested,) = db.rows("SELECT (map->>'low')::double precision AS low FROM shapes_1s_current WHERE k = 'a'")
    assert comment["text"].startswith("All measures are in this view")
    assert nested["low"] == -2.5
    for row, values in zip(rows, ROWS.values(), strict=True):
        for shape, (dtype, _) in SHAPES.items():
            exact = as_json(expected(shape, values), dtype)
            if not pa.types.is_struct(dtype):
                assert json.loads(row[shape]) == exact
            elif shape == "record_with_map":
                assert (row[f"{shape}_n"], json.loads(row[f"{shape}_by_name"])) == (exact["n"], exact["by_name"])


@pytest.mark.store
@pytest.mark.slow
@pytest.mark.parametrize(("shape", "lines"), [("map", 4), ("map_of_integers", 3), ("record_with_map", 4)])
def test_maps_of_numbers_are_plotted_with_a_line_for_each_key(shape, lines, tmp_path):
    pytest.importorskip("matplotlib").use("agg")
    frame = frame_of(shape)
    store = FrameStore(tmp_path / "s", frame)
    store.append(rollup(TABLE, frame), "me", 0)
    axes = store.plot(shape, keys=["k"], per="1s")
    assert len(axes.get_legend().get_texts()) >= lines
