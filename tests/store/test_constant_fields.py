"""Constant fields are read from the metadata of a file, and the rows equal those that another reader finds in it."""

from __future__ import annotations

import os
import random
import struct
from functools import partialmethod

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import aggr
from tiltframe import FrameStore, Query, TiltFrame
from tiltframe.names import START
from tiltframe.store.backends.delta import constant_fields
from tiltframe.store.backends.delta.constant_fields import ConstantFields
from tiltframe.store.backends.delta.files import read_files, write_file
from tiltframe.store.backends.protocol import Part
from tiltframe.store.backends.stored_types import stored

pytestmark = [
    pytest.mark.store,
    pytest.mark.skipif(
        not hasattr(pq.ParquetWriter, "add_key_value_metadata"), reason="before pyarrow 16, files have no constants"
    ),
]
SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
COUNT = 12_000
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_1234))[0]
TO_METADATA = ConstantFields.to_metadata
CONSTANTS = {
    "text": pa.array(["dds"] * COUNT),
    "no text": pa.array([""] * COUNT),
    "bytes": pa.array([b"\0x"] * COUNT),
    "int8": pa.array([-3] * COUNT, pa.int8()),
    "uint64": pa.array([2**64 - 1] * COUNT, pa.uint64()),
    "double": pa.array([0.1] * COUNT),
    "negative zero": pa.array([-0.0] * COUNT),
    "nan": pa.array(np.full(COUNT, OTHER_NAN)),
    "float": pa.array([0.5] * COUNT, pa.float32()),
    "null": pa.nulls(COUNT, pa.int32()),
}
OTHERS = {
    "zeros": pa.array([-0.0, 0.0] * (COUNT // 2)),
    "nans": pa.array(np.tile([OTHER_NAN, np.nan], COUNT // 2)),
    "one null": pa.array([5] * (COUNT - 1) + [None]),
    "one other": pa.array(["a"] * (COUNT - 1) + ["b"]),
    "list": pa.array([[1]] * COUNT),
    "time": pa.array([5] * COUNT, pa.timestamp("us", "UTC")),
    "truth": pa.array([True] * COUNT),
    "decimal": pa.array([1] * COUNT).cast(pa.decimal128(19, 0)),
}


def bits(table: pa.Table) -> list:
    """Return the columns of a table, with bytes in the place of floats, because 0.0 == -0.0 and NaN != NaN."""
    return [list(map(exact, column.to_pylist())) for column in table.columns]


def exact(value):
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, dict):
        return {name: exact(item) for name, item in value.items()}
    return value


def written(folder, rows: pa.Table) -> tuple[Part, fs.FileSystem]:
    system = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    sizes = [5000, 1, rows.num_rows - 5001]
    name, size = write_file(rows, [START], folder=system, subfolder="level=1m/bucket=x", sizes=sizes)
    starts = rows.column(START).cast(pa.int64()).to_numpy()
    return Part("1m", int(starts[0]), last_start=int(starts[-1]), rows=rows.num_rows, bytes=size, name=name), system


def random_struct(rng: np.random.Generator, depth: int) -> pa.Array:
    """A struct of some of the columns, in random order, with structs inside."""
    named = {**CONSTANTS, **OTHERS}
    names = rng.permutation(list(named))[: rng.integers(1, 8)].tolist()
    fields = {name: named[name] for name in names}
    if depth:
        fields["inner"] = random_struct(rng, depth - 1)
    mask = pa.array(rng.random(COUNT) < 0.01) if rng.random() < 0.3 else None
    return pa.StructArray.from_arrays(list(fields.values()), names=list(fields), mask=mask)


@pytest.mark.parametrize("trial", range(12))
def test_rows_equal_those_of_another_reader(tmp_path, trial):
    rng = np.random.default_rng([SEED, trial])
    print(f"TILTFRAME_SEED={SEED}")
    starts = pa.array(np.arange(COUNT) * 60_000_000, pa.timestamp("us", "UTC"))
    columns = {START: starts, "host": CONSTANTS["text"], "a": random_struct(rng, 2), "b": random_struct(rng, 1)}
    rows = pa.table({name: stored(column) for name, column in columns.items()})
    part, folder = written(tmp_path, rows)
    names = [START, *rng.permutation(["host", "a", "b"])[: rng.integers(0, 4)].tolist()]
    first = int(rng.integers(0, COUNT)) * 60_000_000
    for span in [(0, 2**60), (first, first + 7000 * 60_000_000)]:
        schema = pa.schema([rows.schema.field(name) for name in names])
        read = read_files([(part, span)], folder, schema)
        file = pq.read_table(tmp_path / part.name, partitioning=None)
        is_inside = [span[0] <= at < span[1] for at in file.column(START).cast(pa.int64()).to_pylist()]
        expected = file.filter(pa.array(is_inside)).select(names)
        assert read.schema.equals(expected.schema)
        assert bits(read) == bits(expected)


def test_which_fields_are_constant():
    columns = {"state": pa.StructArray.from_arrays([*CONSTANTS.values(), *OTHERS.values()], [*CONSTANTS, *OTHERS])}
    metadata = ConstantFields.find(pa.table(columns)).to_metadata()
    constants = ConstantFields.from_metadata({key.encode(): value.encode() for key, value in metadata.items()})
    assert set(constants.values) == {f"state.{name}" for name in CONSTANTS}


def test_a_struct_with_nulls_has_no_constant_fields():
    values = pa.StructArray.from_arrays([CONSTANTS["text"]], ["text"], mask=pa.array([False] * (COUNT - 1) + [True]))
    assert ConstantFields.find(pa.table({"state": values})).to_metadata() == {}


def test_names_with_dots_are_ambiguous():
    state = pa.StructArray.from_arrays([CONSTANTS["text"]], ["function"])
    assert ConstantFields.find(pa.table({"n": state})).to_metadata()
    assert ConstantFields.find(pa.table({"n": state, "n.function": OTHERS["one other"]})).to_metadata() == {}
    inner = pa.StructArray.from_arrays([OTHERS["one other"]], ["b"])
    assert (
        ConstantFields.find(
            pa.table({"n": pa.StructArray.from_arrays([CONSTANTS["text"], inner], ["a.b", "a"])})
        ).to_metadata()
        == {}
    )


def test_values_of_another_file_are_not_written(tmp_path):
    starts = pa.array(np.arange(COUNT) * 60_000_000, pa.timestamp("us", "UTC"))
    entry = ConstantFields.find(pa.table({"host": CONSTANTS["text"]})).to_metadata()
    rows = pa.table({START: starts, "host": OTHERS["one other"]}).replace_schema_metadata(entry)
    part, folder = written(tmp_path, rows)
    assert read_files([(part, (0, 2**60))], folder, rows.schema).column("host").equals(rows.column("host"))


def test_rows_in_another_order_keep_their_values():
    """Only the fields that are not constant are copied, and each row keeps the bits of all its fields."""
    rng = np.random.default_rng(7)
    for trial in range(10):
        columns = {name: random_struct(rng, 2) for name in "ab"} | {"n": pa.array(np.arange(COUNT))}
        columns["null"] = pa.StructArray.from_arrays(
            [CONSTANTS["text"]], ["text"], mask=pa.array(rng.random(COUNT) < 0.1)
        )
        rows = pa.table(columns).slice(0, COUNT - trial)
        order = rng.permutation(rows.num_rows)
        constants = ConstantFields.find(rows)
        assert constants.parents
        reordered = constants.reorder(rows, pa.array(order))
        assert reordered.schema.equals(rows.schema)
        assert bits(reordered) == bits(rows.take(pa.array(order)))


def test_files_of_other_programs_are_read_completely(tmp_path):
    """Another program may copy the metadata of a file into a file with other rows."""
    starts = pa.array(np.arange(COUNT) * 60_000_000, pa.timestamp("us", "UTC"))
    part, folder = written(tmp_path, pa.table({START: starts, "host": CONSTANTS["text"]}))
    metadata = pq.read_metadata(tmp_path / part.name).metadata
    assert constant_fields.METADATA_KEY in metadata
    other = pa.table({START: starts, "host": OTHERS["one other"]})
    foreign_name = "level=1m/bucket=x/part-0.parquet"
    entry = {constant_fields.METADATA_KEY: metadata[constant_fields.METADATA_KEY]}
    pq.write_table(other.replace_schema_metadata(entry), tmp_path / foreign_name)
    foreign = Part("1m", part.first_start, last_start=part.last_start, rows=COUNT, bytes=part.bytes, name=foreign_name)
    read = read_files([(foreign, (0, 2**60))], folder, other.schema)
    assert read.column("host").to_pylist() == OTHERS["one other"].to_pylist()


def rows_of_ten_hosts() -> pa.Table:
    """Return one row per host and minute. The file of a day has more than 10,000 rows, and thus constant fields."""
    minutes = np.repeat(np.arange(2000), 10)
    return pa.table(
        {
            "ts": pa.array(minutes * 60_000_000, pa.timestamp("us", "UTC")),
            "host": [f"h{number % 10}" for number in range(len(minutes))],
            "x": np.random.default_rng(3).exponential(5, len(minutes)),
        }
    )


def test_constant_fields_are_not_read(tmp_path):
    """The pages of the constant fields of all large files are overwritten. Queries return the same results, so these
    pages were not read. A check finds the damage.
    """
    frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "q": aggr.dds("x")}, ["host"])
    store = FrameStore(tmp_path / "a", frame)
    rows = rows_of_ten_hosts()
    store.append_rows(rows, "w", 1)
    expected = FrameStore(tmp_path / "a").at().states(Query(per="1m")).table()
    names = [part.name for part in store.at().snapshot.parts if part.level == "1m" and part.rows >= 10_000]
    assert names
    overwritten = set()
    for name in names:
        path = tmp_path / "a" / "tiltframe" / name
        data = bytearray(path.read_bytes())
        metadata = pq.read_metadata(path)
        paths = ConstantFields.from_metadata(metadata.metadata).values
        for group in range(metadata.num_row_groups):
            for index in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(index)
                if chunk.path_in_schema in paths:
                    begin = chunk.dictionary_page_offset or chunk.data_page_offset
                    data[begin : begin + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
                    overwritten.add(chunk.path_in_schema)
        path.write_bytes(data)
    assert {"n.function", "q.function", "q.relative_accuracy", "q.max_bins"} <= overwritten
    assert FrameStore(tmp_path / "a").at().states(Query(per="1m")).table().equals(expected)
    assert not FrameStore(tmp_path / "a").verify().ok


def test_a_check_compares_constant_fields_with_the_metadata(tmp_path):
    """The metadata of a file has another value than its column."""
    frame = TiltFrame(["1m"], "ts", {"n": aggr.count()}, ["host"])
    rows = rows_of_ten_hosts()
    for name, wrong_count in (("right", None), ("wrong", 2)):
        with pytest.MonkeyPatch.context() as patch:
            if wrong_count is not None:
                patch.setattr(ConstantFields, "to_metadata", partialmethod(changed_metadata, wrong_count))
            store = FrameStore(tmp_path / name, frame)
            store.append_rows(rows, "w", 1)
        check = FrameStore(tmp_path / name).verify()
        assert check.ok == (wrong_count is None)
        assert wrong_count is None or any("n.count differ from its metadata" in problem for problem in check.problems)


def changed_metadata(constants: ConstantFields, count: int) -> dict[str, str]:
    """Return the metadata of constant fields in which the state of `aggr.count` has another count."""
    changed = {"n.count": pa.array([count])} if "n" in constants.parents else {}
    return TO_METADATA(ConstantFields({**constants.values, **changed}))
