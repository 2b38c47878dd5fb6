"""States that released versions wrote read, merge and finish the same, to the bit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from aggr.arrow.bit_equality import same_bits
from aggr.groups.groups import Groups
from tests.golden.make import CASES, IDS

GOLDEN = Path(__file__).parents[1] / "golden"
FILES = sorted((Path(__file__).parents[1] / "golden").glob("v*/*.arrow"))


def test_there_are_golden_states_of_every_case():
    assert {f.stem for f in FILES if f.parent.name == "v1"} == set(CASES)


@pytest.mark.parametrize("file", FILES, ids=lambda f: f"{f.parent.name}-{f.stem}")
def test_golden(file):
    function, values = CASES[file.stem]
    golden = pa.ipc.open_file(file).read_all().combine_chunks()
    states, results, merged, result = (golden.column(c).combine_chunks() for c in golden.column_names)
    assert same_bits(function.finish(states), results)
    assert same_bits(function.merge(states, Groups.single(IDS.n)), merged[:1])
    assert same_bits(function.finish(merged[:1]), result[:1])
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
            assert set(new.drop_null().field("function").to_pylist()) == {CASES[name][0].state_name}
            parts = [new.field(f.name) for f in old.type]
            new = pa.StructArray.from_arrays(parts, fields=list(old.type), mask=new.is_null())
        assert same_bits(new, old)


def twice(n: int) -> Groups:
    return Groups.of([*range(n), *range(n)], n)
