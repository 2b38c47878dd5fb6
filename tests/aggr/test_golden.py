"""States that released versions have written can be read and merged, and their results have the same bits."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import aggr
from aggr.arrow.bit_equality import same_bits
from aggr.groups.groups import Groups
from aggr.state_checks import VERSION
from tests.golden.make import CASES, IDS

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parents[1] / "golden"
FILES = sorted((Path(__file__).parents[1] / "golden").glob("v*/*.arrow"))


def test_there_are_golden_states_of_every_case():
    """Of every case, those of the version that this release writes."""
    versions = {(file.stem, pc.max(_states_in(file).field(VERSION)).as_py()) for file in FILES}
    assert {name for name, _ in versions} == set(CASES)
    assert {(name, function.own_state.version) for name, (function, _) in CASES.items()} <= versions


def test_every_built_in_function_has_a_golden_state_and_a_place_in_the_reference():
    """docs/adding-a-built-in.md lists the places; the row in docs/functions.md has a test of its own."""
    golden = {function.own_state.name for function, _ in CASES.values()}
    reference = "".join(page.read_text() for page in (ROOT / "docs" / "reference" / "aggr").glob("*.md"))
    built_in = [aggr.get(name) for name in aggr.names() if aggr.get(name).__module__.startswith("aggr.")]
    assert [function.name for function in built_in if function().own_state.name not in golden] == []
    assert [f.name for f in built_in if f".. autofunction:: {f.name}\n" not in reference] == []
    assert [f.name for f in built_in if f".. autoclass:: {f.__name__}\n" not in reference] == []


@pytest.mark.parametrize("file", FILES, ids=lambda f: f"{f.parent.name}-{f.stem}")
def test_golden(file):
    function, values = CASES[file.stem]
    golden = pa.ipc.open_file(file).read_all().combine_chunks()
    states, results, merged, result = (golden.column(c).combine_chunks() for c in golden.column_names)
    assert same_bits(function.finish(states), results)
    assert same_bits(_of_version(function.merge(states, Groups.single(IDS.n)), merged), merged[:1])
    assert same_bits(function.finish(merged[:1]), result[:1])
    if pc.max(states.field(VERSION)).as_py() < function.own_state.version:
        return  # of an earlier version, rows of today may have other states
    # and what this release writes merges with what they wrote
    own = function.reduce(values, IDS)
    both = function.merge(pa.concat_arrays([states, function.zero(IDS.n, values.type).cast(states.type)]), twice(IDS.n))
    assert same_bits(both, function.merge(own, Groups.each(IDS.n)))


@pytest.mark.parametrize("name", sorted(file.stem for file in (GOLDEN / "unnamed").glob("*.arrow")))
def test_naming_states_changed_nothing_else(name):
    """States as they were before they carried their function's name, field by field."""
    before, now = (pa.ipc.open_file(GOLDEN / v / f"{name}.arrow").read_all() for v in ("unnamed", "v1"))
    for column in before.column_names:
        old, new = (table.column(column).combine_chunks() for table in (before, now))
        if column in ("states", "merged"):
            assert {f.name for f in new.type} - {f.name for f in old.type} == {"function"}
            assert set(new.drop_null().field("function").to_pylist()) == {CASES[name][0].own_state.name}
            parts = [new.field(f.name) for f in old.type]
            new = pa.StructArray.from_arrays(parts, fields=list(old.type), mask=new.is_null())
        assert same_bits(new, old)


def test_states_of_an_earlier_version_merge_with_those_of_today():
    """Sums of decimals were those of the nearest doubles: added to exact ones, they stay what they were."""
    function, values = CASES["dds-folded"]
    old = _states_in(GOLDEN / "v1" / "dds-folded.arrow")
    own = function.reduce(values, IDS)
    both = function.merge(pa.concat_arrays([old, own]), twice(IDS.n))
    assert set(both.field(VERSION).to_pylist()) == {function.own_state.version}
    result = function.finish(both)[0].as_py()
    rows = [0.25, 2.25, 6.25, 9.25]  # of group 0, each a double
    assert (result["count"], result["sum"]) == (2 * len(rows), 2 * sum(rows))


def _states_in(file: Path) -> pa.StructArray:
    return pa.ipc.open_file(file).read_all().column("states").combine_chunks()


def _of_version(states: pa.StructArray, other: pa.StructArray) -> pa.StructArray:
    """Put the version of other states in the place of these states' own."""
    columns = {field.name: states.field(field.name) for field in states.type}
    columns[VERSION] = pa.repeat(other.field(VERSION)[0], len(states))
    return pa.StructArray.from_arrays(list(columns.values()), fields=list(states.type))


def twice(n: int) -> Groups:
    return Groups.of([*range(n), *range(n)], n)
