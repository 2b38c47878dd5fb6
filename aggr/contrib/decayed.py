"""decayed_sum, decayed_avg, decayed_count: the weight of a row halves with each half-life after its event time.

    weight of a row in a state       2^(t / half_life)            t is the event time of the row, counted from 1970
    its weight at a later time T     2^((t - T) / half_life)      the weight in the state, divided by 2^(T / half_life)

Weights in a state do not depend on T, so their sums can be merged. Time is divided into spans of 32 half-lives, and a
state has separate sums for each span. Weights in consecutive spans differ by a factor of 2^32:

    span    52 310       52 311       52 312       52 313        (span of the newest row)
            Σw, Σwx      Σw, Σwx      Σw, Σwx      Σw, Σwx       each divided by 2^(32·span)

A state contains only the last four spans. A weight in an earlier span is below 2^-96 of the newest row's weight, and
counts as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.extend import (
    EVENT_TIME,
    GREATEST,
    OR,
    SUMMABLE,
    TIMES,
    DamagedState,
    ExactNumbers,
    Field,
    Function,
    Groups,
    InputTypes,
    Limbs,
    Numbers,
    State,
    Values,
    sum_exactly,
    sum_products,
)
from aggr.extend.arguments import DAY, duration_text, read_duration, read_time, shown
from aggr.extend.columns import Flags, Floats, Whole, extreme_by_group, field_of_type, microseconds, refuse_nulls
from aggr.extend.columns import compute as pc
from aggr.extend.exact import (
    EXACT_TYPE,
    UNIT,
    check_exact,
    check_unit,
    kept_type,
    merge_exactly,
    power_of_two,
    scale_of,
    unit_of,
    with_special,
)
from aggr.extend.lists import check_neighbours, checked_entries, entries_of, lists_of

# The number of half-lives per span. Weights in consecutive spans therefore differ by a factor of 2^32. To multiply
# an exact sum by this factor, its digits are shifted by one position, because 2^32 is the base of the digits.
_HALF_LIVES_PER_SPAN = 32
_SPANS = 4
# The maximum number of spans between the newest row and the time for which a result is computed. A later time is
# replaced by the time after this number of spans. The result is the same, because after 200 spans, every sum has
# decayed so far that its nearest double is 0.
_MAX_SPANS_LATER = 200
_LONGEST = 100 * 366 * DAY
_SPAN_TYPE = pa.struct(
    [("span", pa.int64()), ("special", pa.int8()), ("weights", EXACT_TYPE), ("products", EXACT_TYPE)]
)


class Spans(Field):
    """The field of a state that lists the sums of the newest spans (intervals of 32 half-lives), in the order of
    time.
    """

    def merge(self, column: pa.ListArray, groups: Groups) -> pa.ListArray:
        spans, owners = entries_of(field_of_type(column, pa.list_(_SPAN_TYPE)), groups)
        cells = Cells.from_spans(spans.field("span").to_numpy(), owners)
        spans = spans.filter(pa.array(cells.is_recent))
        sums = (merge_exactly(spans.field(name), cells.groups) for name in ("weights", "products"))
        return cells.to_lists(OR.merge(spans.field("special"), cells.groups), *sums)

    def check(self, column: pa.Array) -> None:
        spans, lengths = checked_entries(field_of_type(column, pa.list_(_SPAN_TYPE)), _SPANS)
        for field in _SPAN_TYPE:
            refuse_nulls(spans.field(field.name))
        numbers, special = (spans.field(name).to_numpy() for name in ("span", "special"))
        check_neighbours(numbers[1:] > numbers[:-1], lengths)
        list_ends = np.cumsum(lengths)[lengths > 0]
        filled_lengths = lengths[lengths > 0]
        if (numbers[list_ends - 1] - numbers[list_ends - filled_lengths] >= _SPANS).any():
            raise DamagedState(f"contains time spans whose numbers differ by {_SPANS} or more")
        if len(special) and not 0 <= special.min() <= special.max() <= 7:
            raise DamagedState("has flags of special values outside the range from 0 to 7")
        check_exact(spans.field("weights"))
        check_exact(spans.field("products"))
        if (Limbs.of_arrow(spans.field("weights")).signs() <= 0).any():
            raise DamagedState("contains weights whose sum is not above 0")


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells into which sums are merged: one for each group and each of its four newest spans (intervals of 32
    half-lives).

    ``newest`` has the number of the newest span of each group. ``is_recent`` is a mask of the rows in the four newest
    spans of their group, and ``groups`` has the cell of each such row.
    """

    newest: Whole
    is_recent: Flags
    groups: Groups

    @classmethod
    def from_spans(cls, spans: Whole, groups: Groups) -> Cells:
        """Return the cells of rows. ``spans`` has the number of the span of each row."""
        newest = extreme_by_group(spans, groups, greatest=True)
        ages = newest[groups.ids] - spans
        is_recent = ages < _SPANS
        ids = groups.ids[is_recent] * _SPANS + (_SPANS - 1 - ages[is_recent])
        return cls(newest, is_recent, Groups.of(ids, groups.n * _SPANS))

    def to_lists(self, special: pa.Array, weights: pa.Array, products: pa.Array) -> pa.ListArray:
        """Return a list per group, with one entry for each of the group's spans that has rows.

        Each parameter has one value per cell, that is, per pair of a group and a span. ``special`` has the flags for
        NaN and infinities, ``weights`` has Σw, and ``products`` has Σwx.
        """
        has_rows = self.groups.counts() > 0
        spans = np.repeat(self.newest, _SPANS) - np.tile(np.arange(_SPANS)[::-1], len(self.newest))
        parts = [part.filter(pa.array(has_rows)) for part in (pa.array(spans), special, weights, products)]
        entries = pa.StructArray.from_arrays(parts, fields=list(_SPAN_TYPE))
        return lists_of(entries, has_rows.reshape(-1, _SPANS).sum(axis=1))


@dataclass(frozen=True)
class DecayedState(State):
    """The state of `DecayedSum`: exact Σw and Σwx of the weights w and the values x, and the newest event time.

    The state has one Σw and one Σwx for each of the last four spans (intervals of 32 half-lives).
    """

    half_life: str

    name = "decayed_sum"
    parameters: ClassVar[Mapping[str, pa.DataType]] = {"half_life": pa.string()}

    @property
    def fields(self) -> Mapping[str, Field]:
        return {"unit": UNIT, "newest": GREATEST, "spans": Spans()}

    def reduce_values(self, values: Values) -> Mapping[str, pa.Array]:
        times = values.field(EVENT_TIME)
        spans, weights = self.spans(microseconds(times.array))
        cells = Cells.from_spans(spans, values.groups)
        rows = Values(values.array.field("value").filter(pa.array(cells.is_recent)), cells.groups)
        weight_numbers = Numbers(weights[cells.is_recent], cells.groups)
        special = np.zeros(cells.groups.n, np.int8)
        if rows.special is not None:
            np.bitwise_or.at(special, cells.groups.ids, rows.special)
        sums = sum_exactly([weight_numbers]), sum_products(rows.parts, [weight_numbers])
        return {
            "unit": unit_of(kept_type(rows.array.type), values.groups.n),
            "newest": GREATEST.reduce(times),
            "spans": cells.to_lists(pa.array(special), *sums),
        }

    def check_consistency(self, states: pa.StructArray) -> None:
        if not pa.types.is_timestamp(states.field("newest").type):
            raise DamagedState(f"its field 'newest' has type {states.field('newest').type}, not a timestamp")
        check_unit(states.field("unit"))
        lengths = pc.list_value_length(states.field("spans")).to_numpy()
        if not np.array_equal(lengths > 0, states.field("newest").is_valid()):
            raise DamagedState("its newest time and its spans contradict each other")
        last = states.field("spans").flatten().field("span").to_numpy()[np.cumsum(lengths)[lengths > 0] - 1]
        newest, _ = self.spans(microseconds(states.field("newest").drop_null()))
        if not np.array_equal(last, newest):
            raise DamagedState("its newest time does not lie in its last span")

    def spans(self, times: Whole) -> tuple[Whole, Floats]:
        """Return the number of the span that contains each time, and the weight of a row at this time.

        Times are in microseconds. The weight is divided by ``2^(32·span)``. Both results have the shape (times,).
        """
        length = read_duration(self.half_life, "half_life")
        half_lives = times // length
        spans = half_lives // _HALF_LIVES_PER_SPAN
        fractions = power_of_two(times - half_lives * length, length)
        return spans, np.ldexp(fractions, half_lives - spans * _HALF_LIVES_PER_SPAN)


@dataclass(frozen=True)
class DecayedSum(Function):
    """Sum a column with weights that halve with each half-life after the event time of a row.

    The result can be computed for the time of the newest row or any later time. Time is divided into spans of 32
    half-lives, and only the rows in the last four spans count. Every row that is less than 96 half-lives older than the
    newest row counts; every row that is at least 128 half-lives older is ignored. The weight of an ignored row is below
    2^-96 of the newest row's weight. NaN gives NaN, and so does inf with -inf. Times are counted in microseconds.

    Parameters
    ----------
    half_life : str
        The half-life, such as ``"1h"``: from a microsecond to a hundred years. The state depends on this parameter.
    as_of : str, optional
        The time for which the result is computed, as ISO 8601 text (UTC without an offset). The default is the time of
        the newest row of each group. This parameter affects only results, not states.

    Raises
    ------
    ValueError
        If ``half_life`` is not a length of time from a microsecond to a hundred years, or ``as_of`` is not a time. When
        the result is read: if rows are later than ``as_of``.

    References
    ----------
    Cormode, Shkapenyuk, Srivastava, Xu, "Forward decay: a practical time decay model for streaming systems" (2009).

    Examples
    --------
    >>> from aggr import decayed_sum
    >>> decayed_sum("clicks", half_life="30m")
    decayed_sum('clicks', half_life='30m')
    """

    half_life: str = "1h"
    as_of: str | None = None

    name = "decayed_sum"
    is_amount = True
    takes: ClassVar[Mapping[str, InputTypes]] = {"value": SUMMABLE, EVENT_TIME: TIMES}
    keeps = "exact Σw and Σwx for each of the last four time spans of 32 half-lives, and the newest event time"
    returns = "float64; null if there are no values"
    guarantee = (
        "the exact weighted result, rounded correctly to a double; each weight 2^(t / half_life) is itself a "
        "correctly rounded double"
    )
    inputs = ("value", EVENT_TIME)

    def __post_init__(self) -> None:
        length = read_duration(self.half_life, "half_life")
        if not 1 <= length <= _LONGEST:
            raise ValueError(f"half_life must be from 1us to 100 years, such as '1h'; got {shown(self.half_life)}")
        object.__setattr__(self, "half_life", duration_text(length))
        _ = self._result_time

    @cached_property
    def _result_time(self) -> int | None:
        """The time for which the result is computed, in microseconds, or None for the time of each group's newest
        row.
        """
        if self.as_of is None:
            return None
        try:
            moment, _ = read_time(self.as_of)
        except (TypeError, ValueError):
            raise ValueError(f"as_of must be a time such as '2024-05-01T10:00:00Z'; got {shown(self.as_of)}") from None
        naive = moment.tzinfo is None
        return int(microseconds(pa.array([moment], pa.timestamp("us", None if naive else "UTC")))[0])

    @property
    def own_state(self) -> DecayedState:
        return DecayedState(self.half_life)

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        has_rows = states.field("newest").is_valid().to_numpy(zero_copy_only=False)
        results = np.zeros(len(states))
        results[has_rows] = self._read(states.filter(pa.array(has_rows)))
        return pa.array(results, mask=~has_rows)

    def _read(self, states: pa.StructArray) -> Floats:
        """Return one result per state, shape (n,). Each state must have at least one row."""
        newest = microseconds(states.field("newest"))
        if self._result_time is not None and len(newest) and newest.max() > self._result_time:
            newest_time = pa.scalar(int(newest.max()), pa.timestamp("us")).as_py().isoformat()
            raise ValueError(
                f"as_of={self.as_of!r} is before the time of the newest row, {newest_time}; "
                "pass that time or a later one"
            )
        spans, owners = entries_of(states.field("spans"), Groups.each(len(states)))
        times = newest if self._result_time is None else np.full(len(newest), self._result_time)
        result_spans, result_weight = self.own_state.spans(times)
        last_entries = np.cumsum(owners.counts()) - 1
        newest_spans = spans.field("span").to_numpy()[last_entries]
        span_differences = (spans.field("span").to_numpy() - newest_spans[owners.ids]).astype(np.int16)
        weights, products = (
            _totals_by_group(spans.field(name), span_differences, owners) for name in ("weights", "products")
        )
        weights_in_span = Limbs.of_arrow(sum_exactly([Numbers(result_weight, Groups.each(len(states)))]))
        result_weights = Limbs(
            weights_in_span.digits,
            weights_in_span.places,
            weights_in_span.low + np.minimum(result_spans - newest_spans, _MAX_SPANS_LATER),
        )
        scaled_products = ExactNumbers(products, scale_of(states.field("unit").type))
        results = self._result(ExactNumbers(weights), scaled_products, ExactNumbers(result_weights))
        special = OR.merge(spans.field("special"), owners).to_numpy()
        return results if self.name == "decayed_count" else with_special(results, special)

    def _result(self, weights: ExactNumbers, products: ExactNumbers, result_weights: ExactNumbers) -> Floats:
        """Compute one number per state, shape (n,), from Σw (``weights``) and Σwx (``products``).

        ``result_weights`` has the weight of a row whose event time is the time for which the result is computed.
        """
        return products.over(result_weights)


@dataclass(frozen=True)
class DecayedAvg(DecayedSum):
    """Compute the mean of a column with weights that halve with each half-life after the event time of a row; see
    `decayed_sum`.

    The mean does not depend on the time for which it is computed.

    Parameters
    ----------
    half_life : str
        The half-life, such as ``"1h"``: from a microsecond to a hundred years. The state depends on this parameter.
    as_of : str, optional
        The time for which the result is computed; see `decayed_sum`.

    Raises
    ------
    ValueError
        For the same reasons as `decayed_sum`.

    Examples
    --------
    >>> from aggr import decayed_avg
    >>> decayed_avg("latency_ms", half_life="5m")
    decayed_avg('latency_ms', half_life='5m')
    """

    name = "decayed_avg"
    is_amount = False

    def _result(self, weights: ExactNumbers, products: ExactNumbers, result_weights: ExactNumbers) -> Floats:
        return products.over(weights)


@dataclass(frozen=True)
class DecayedCount(DecayedSum):
    """Count rows with weights that halve with each half-life after the event time of a row; see `decayed_sum`.

    Parameters
    ----------
    half_life : str
        The half-life, such as ``"1h"``: from a microsecond to a hundred years. The state depends on this parameter.
    as_of : str, optional
        The time for which the result is computed; see `decayed_sum`.

    Raises
    ------
    ValueError
        For the same reasons as `decayed_sum`.

    Examples
    --------
    >>> from aggr import decayed_count
    >>> decayed_count("user", half_life="7d")
    decayed_count('user', half_life='7d')
    """

    name = "decayed_count"

    def _result(self, weights: ExactNumbers, products: ExactNumbers, result_weights: ExactNumbers) -> Floats:
        return weights.over(result_weights)


def _totals_by_group(sums: pa.StructArray, span_differences: NDArray[np.int16], owners: Groups) -> Limbs:
    """Return the total of the exact sums of each group. Each sum is first multiplied by ``2^(32·d)``.

    ``span_differences`` has d for each sum: the span of the sum minus the newest span of its group. ``owners`` has the
    group of each sum.
    """
    has_digits = pc.list_value_length(sums.field("limbs")).to_numpy() > 0
    exponents = sums.field("exponent").to_numpy() + np.where(has_digits, span_differences, 0)
    moved_sums = pa.StructArray.from_arrays(
        [pa.array(exponents, pa.int16()), sums.field("limbs")], fields=list(EXACT_TYPE)
    )
    return Limbs.of_arrow(merge_exactly(moved_sums, owners))
