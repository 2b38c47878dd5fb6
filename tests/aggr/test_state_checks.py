"""Checked states: which states are checked, which are not, and which modules may mark states as checked."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import aggr
from aggr.extend import DamagedState
from aggr.state_checks import CheckedStates, checked, mark_as_checked

ROOT = Path(__file__).parent.parent.parent
SUM, ALL = aggr.Sum(), aggr.Groups.single(2)
STATES = SUM.reduce(pa.array([1.0, 2.0]), aggr.Groups.each(2))
WHO_MAY = {  # between the batches, levels and phases of one job; whatever comes from elsewhere is checked
    *("aggr/bench/costs.py", "aggr/functions/distinct_values.py", "aggr/functions/keyed_states.py"),
    *(f"tiltframe/serve/promql/{name}.py" for name in ("cells", "classic_buckets", "histogram_counts")),
    *(f"tiltframe/serve/promql/{name}.py" for name in ("metrics", "response", "select")),
    *("aggr/state.py", "aggr/state_checks.py", "aggr/tables/ranges.py"),
    *("tiltframe/level_chain.py", "tiltframe/reducing.py", "tiltframe/rolling_up.py", "tiltframe/spilled_states.py"),
    "tiltframe/store/closed_windows.py",
    "tiltframe/store/changes/group_commit.py",
    "tiltframe/store/checked_states.py",
    *("tiltframe/store/query/results.py", "tiltframe/streaming/open_windows.py"),
    *("tiltframe/streaming/window_table.py", "spark_udaf/batch/aggregate.py", "spark_udaf/batch/rollup.py"),
}


def damaged(states):
    """Give states a count that no rows have."""
    columns = {f.name: states.field(f.name) for f in states.type} | {"count": pa.array([-1] * len(states))}
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def test_merging_checked_states_gives_checked_states_with_the_same_bits():
    merged = SUM.merge(checked(SUM, STATES), ALL)
    assert isinstance(merged, CheckedStates)
    assert merged.states.equals(SUM.merge(STATES, ALL))
    assert SUM.finish(merged).to_pylist() == SUM.finish(merged.states).to_pylist() == [3.0]


@pytest.mark.parametrize(
    "read", [lambda states: checked(SUM, states), SUM.finish, lambda states: SUM.merge(states, ALL)]
)
def test_states_from_outside_are_checked(read):
    with pytest.raises(DamagedState, match="a damaged state of sum: its field 'count' contains the negative count -1"):
        read(damaged(STATES))


def test_checked_states_are_not_looked_at_again():
    assert SUM.merge(mark_as_checked(damaged(STATES)), ALL).states.field("count").to_pylist() == [-2]


def test_checked_states_do_not_travel():
    with pytest.raises(TypeError, match="checked states cannot be pickled; send their Arrow column"):
        pickle.dumps(checked(SUM, STATES))


def test_nobody_else_says_that_states_need_no_check():
    packages = ("aggr", "windows", "tiltframe", "spark_udaf")
    files = {str(file.relative_to(ROOT)) for package in packages for file in (ROOT / package).rglob("*.py")}
    saying = {
        name for name in files if "mark_as_checked(" in (text := (ROOT / name).read_text()) or "CheckedStates(" in text
    }
    assert {"aggr/state.py", "tiltframe/level_chain.py"} <= saying <= WHO_MAY
