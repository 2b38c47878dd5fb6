"""collect: all values of a group, in the order of their event times, independent of the order of arrival."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

import pyarrow as pa

from aggr.arguments import shown
from aggr.duration import read_duration
from aggr.function_inputs import EVENT_TIME
from aggr.functions.event_lists import EventLists
from aggr.functions.value_lists import ALL, DEFAULT_MAX, nested_lists, values_of
from aggr.input_types import ORDERED, ORDERED_OR_RECORDS, InputTypes


@dataclass(frozen=True)
class Collect(EventLists):
    """List the values of a column in the order of event times. Values with the same time are in the order of values.

    At each level of a frame, the list covers the whole window. With ``nested``, such as ``"10s"``, the result is a
    list of lists, one for each period of this length that has values. Several columns, as in
    ``collect(["span_id", "name"])``, are listed as records. A record may contain nulls.

    Parameters
    ----------
    max : int
        The maximum number of values per group, for windows of any length. The state depends on this parameter and on
        ``keep``.
    keep : "all", "earliest" or "latest"
        The values to keep if a group has more than ``max``: "earliest" keeps the ``max`` earliest values, and "latest"
        the ``max`` latest. With "all", ``beyond`` determines the action.
    beyond : "error" or "null"
        The action if a group has more than ``max`` values: raise an error, or return null. The result of such a group
        remains null in every merge, and its values are not stored. The state depends on this parameter.
    nested : str or sequence of str
        Lengths of time in ascending order, such as ``["10s", "1m"]``. The result then has one list for each period of
        each length that has values. Periods are aligned to UTC. Lists of longer periods contain the lists of shorter
        periods. This parameter affects only results, not states.

    Raises
    ------
    ValueError
        If ``max`` is not a whole number of at least 1, ``keep`` or ``beyond`` is not an allowed value, or a
        length in ``nested`` is not a multiple of the one before it.
    TypeError
        When data is reduced: if ``nested`` is passed and ``by`` is not a column of timestamps.

    Examples
    --------
    >>> from aggr import collect
    >>> collect("price", max=3, keep="latest")
    collect('price', max=3, keep='latest')
    >>> collect("price", nested="1m")
    collect('price', nested=['1m'])
    >>> collect(["span_id", "name"])
    collect('struct(span_id, name)')
    """

    max: int = DEFAULT_MAX
    keep: str = ALL
    nested: tuple[str, ...] = field(default=(), metadata={"accepts": "str | Sequence[str]"})

    name = "collect"
    takes: ClassVar[InputTypes | Mapping[str, InputTypes]] = {"value": ORDERED_OR_RECORDS, EVENT_TIME: ORDERED}
    time_is_order = True
    returns = "list of the type of the input; empty if there are no values"
    guarantee = "exact, ordered by event time and value, never by arrival"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "nested", _checked_nested(self.nested))

    def check_input(self, dtype: pa.DataType) -> None:
        super().check_input(dtype)
        if self.nested and not pa.types.is_timestamp(dtype.field(EVENT_TIME).type):
            raise TypeError(
                f"nested={list(self.nested)} needs timestamps as event times; the column in by= has the type "
                f"{dtype.field(EVENT_TIME).type}; cast it to a timestamp"
            )

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        events = states.field("events")
        values = values_of(events, "value")
        if not self.nested:
            return values
        times = values_of(events, "time").flatten()
        # Times in nanoseconds keep their unit, because a cast to microseconds would round times before 1970 upwards.
        unit = "ns" if times.type.unit == "ns" else "us"
        lengths = [read_duration(text, "nested") * (1000 if unit == "ns" else 1) for text in self.nested]
        return nested_lists(values, times.cast(pa.timestamp(unit)).cast(pa.int64()).to_numpy(), lengths)


def _checked_nested(nested: object) -> tuple[str, ...]:
    """Return the parameter ``nested`` as a tuple of texts. Raise ``ValueError`` unless each length of time is a greater
    multiple of the previous length.
    """
    texts = [nested] if isinstance(nested, str) else nested
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"nested= must be lengths of time such as ['10s', '1m']; got {shown(nested)}")
    lengths = [read_duration(text, "length in nested=") for text in texts]
    if 0 in lengths or any(b <= a or b % a for a, b in pairwise(lengths)):
        raise ValueError(
            f"each length in nested= must be a greater multiple of the length before it; got {shown(list(texts))}"
        )
    return tuple(texts)
