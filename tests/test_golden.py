"""States that released versions wrote read, merge and finish the same, to the bit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from aggr.bits import same_bits
from aggr.groups import Groups
from tests.golden.make import CASES, IDS

FILES = sorted((Path(__file__).parent / "golden").glob("v*/*.arrow"))


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


def twice(n: int) -> Groups:
    return Groups.of([*range(n), *range(n)], n)
