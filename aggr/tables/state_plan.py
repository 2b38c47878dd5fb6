"""The plan: the columns of states that a frame needs. Measures that can be computed from one state share a column."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from aggr.measure import Measure


@dataclass(frozen=True)
class StateColumn:
    """One column of states, with the name of the first measure that is computed from it.

    ``measure`` reduces rows to the states and merges them. ``serves`` contains the names of all measures that are
    computed from the states. ``readers`` maps these names to the measures, and is empty if the frame was read from a
    store.
    """

    name: str
    measure: Measure
    serves: tuple[str, ...]
    readers: Mapping[str, Measure] = field(default_factory=dict, compare=False)

    def input_columns(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the columns among ``names`` that the measure reads.

        Raise ``ValueError`` for the same reasons as `Measure.columns`. The message names all measures that are computed
        from this column of states.
        """
        try:
            return self.measure.columns(names)
        except ValueError as error:
            raise ValueError(f"{', '.join(self.serves)}: {error}") from None


def plan_state_columns(measures: Mapping[str, Measure]) -> tuple[StateColumn, ...]:
    """Return as few columns of states as possible from which all measures can be computed.

    For example, sum, avg, var, stdev and count of one column, with the same condition, need only one column of states.

    >>> import aggr
    >>> [c.serves for c in plan_state_columns({"n": aggr.count("x"), "mean": aggr.avg("x"), "sd": aggr.stdev("x")})]
    [('n', 'mean', 'sd')]
    """
    state_measures = {name: measure.of_states() for name, measure in measures.items()}
    names_by_column: dict[str, list[str]] = {}
    for name, measure in state_measures.items():
        candidates = [
            candidate_name for candidate_name, candidate in state_measures.items() if can_compute(candidate, measure)
        ]
        column_name = max(candidates, key=lambda candidate_name: state_measures[candidate_name].function.own_state.rank)
        names_by_column.setdefault(column_name, []).append(name)
    return tuple(
        StateColumn(serves[0], state_measures[column_name], tuple(serves), {name: measures[name] for name in serves})
        for column_name, serves in names_by_column.items()
    )


def find_state_column(columns: Sequence[StateColumn], measure: Measure) -> StateColumn | None:
    """Return the first of ``columns`` from whose states a measure can be computed, or None if there is none.

    >>> import aggr
    >>> columns = plan_state_columns({"p": aggr.dds("x", [0.5])})
    >>> find_state_column(columns, aggr.dds("x", [0.999])).name, find_state_column(columns, aggr.dds("y", [0.5]))
    ('p', None)
    """
    return next((column for column in columns if can_compute(column.measure, measure)), None)


def can_compute(candidate: Measure, measure: Measure) -> bool:
    """Return whether ``measure`` can be computed from the states of ``candidate``.

    >>> import aggr
    >>> can_compute(aggr.var("x"), aggr.sum("x")), can_compute(aggr.sum("x"), aggr.var("x"))
    (True, False)
    >>> can_compute(aggr.var("y"), aggr.sum("x"))
    False
    """
    if candidate == measure:
        return True
    candidate_state = candidate.function.own_state
    is_same = candidate_state == measure.function.own_state
    return (is_same or candidate_state in measure.function.reads) and _reduced_values(candidate) == _reduced_values(
        measure
    )


def _reduced_values(measure: Measure) -> tuple[object, ...]:
    """Return the input columns, the column of weights and the condition of a measure.

    If this function returns equal results for two measures, the measures reduce the same values of the same rows.
    """
    inputs = {word: name for word, name in measure.named_inputs().items() if name is not None}
    return measure.column, measure.others, inputs, measure.where
