"""SQL terms: merging of fields of states in PostgreSQL, and exact arithmetic on the merged fields.

Sums are exact: they are computed as numeric and rounded once. Quotients are computed to many more places than a double
has, and then rounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from aggr.exact.scaled_sums import SPAN
from tiltframe.store.backends.sql.literals import quoted
from tiltframe.store.backends.sql.state_columns import column_name

_LARGEST = "(2::numeric ^ 1024 - 2::numeric ^ 970)"  # numbers from here on round to infinity
_SMALLEST = "(5::numeric ^ 1075 * '1e-1075'::numeric)"  # half of the least positive double
_PLACES = 1000  # decimal places of a quotient, the maximum of PostgreSQL


@dataclass
class Merged:
    """The merged fields of a level's states, by the aggregate that merges each, so that each is computed once.

    Inside the view, keys are called ``k0, k1, …`` and aggregates ``a0, a1, …``, all of the subquery ``m``, so that
    names of users do not occur.
    """

    names: dict[str, str] = field(default_factory=dict)

    def __call__(self, aggregate: str) -> str:
        return "m." + self.names.setdefault(aggregate, f"a{len(self.names)}")

    def add(self, *path: str) -> str:
        """Return the sum of the whole numbers of a field."""
        return self(f"sum({column_of(*path)})")

    def add_exactly(self, *path: str, scaled: bool = False) -> str:
        """Return the total of exact sums: digits times powers of 2^32, where a negative power is 5^n / 10^n.

        ``scaled`` sums have decimal places in their exponents, as `aggr.exact.scaled_sums` writes them.
        """
        level, size = column_of(*path, "exponent"), ""
        if scaled:
            places = f"(({level} + {SPAN // 2}) / {SPAN})"  # SQL truncates towards 0, and levels are at least -SPAN / 2
            level, size = f"({level} - {SPAN} * {places})", f" * ('1e-' || {places})::numeric"
        power = f"32 * ({level} + l.place - 1)"
        return self(
            f"sum((SELECT coalesce(sum(l.digit{size} * CASE WHEN {power} >= 0 THEN 2::numeric ^ ({power})::numeric "
            f"ELSE 5::numeric ^ (-{power})::numeric * ('1e' || {power})::numeric END), 0) "
            f"FROM unnest({column_of(*path, 'limbs')}) WITH ORDINALITY AS l (digit, place)))"
        )

    def pick(self, value: str, order: str, present: str) -> str:
        """Return the first value in an order."""
        return self(f"(array_agg({value} ORDER BY {order}) FILTER (WHERE {present} IS NOT NULL))[1]")


def column_of(*path: str) -> str:
    """Return the column of a field of a state."""
    return f"s.{quoted(column_name('.'.join(path)))}"


def in_order(value: str, dtype: pa.DataType, down: bool) -> str:
    """Return an order of values like `aggr.arrow.sort_keys`: -0.0, equal to 0.0 in PostgreSQL, comes before it."""
    sign = f", float8send({value}){'' if down else ' DESC'}" if pa.types.is_floating(dtype) else ""
    return value + (" DESC" if down else "") + sign


def quotient(value: str, by: str, root: bool = False, any_size: bool = False) -> str:
    """Return a quotient, or its square root, to many more places than a double has; null for a divisor of zero.

    With ``any_size``, the divisor may have any size, and the quotient has 1000 places. For small quotients, the value
    is first multiplied by 2^2200, because halves of the least doubles have more places.
    """
    places = f"greatest(scale({value}), {_PLACES})" if any_size else f"scale({value}) + 60"
    function, small, power = ("sqrt", "1e-560", 1100) if root else ("", "1e-280", 2200)
    enlarged = f"{function}(round({value} * 2::numeric ^ 2200, {_PLACES}) / nullif({by}, 0))"
    return (
        f"(CASE WHEN abs({value}) < abs({by}) * '{small}'::numeric "
        f"THEN {enlarged} * (5::numeric ^ {power} * '1e-{power}'::numeric) "
        f"ELSE {function}(round({value}, {places}) / nullif({by}, 0)) END)"
    )


def rounded(value: str) -> str:
    """Return a numeric rounded to a double; without it, PostgreSQL raises an error for results of 0 or infinity."""
    return (
        f"CASE WHEN abs({value}) >= {_LARGEST} THEN sign({value})::float8 * 'Infinity'::float8 "
        f"WHEN abs({value}) <= {_SMALLEST} THEN CASE WHEN {value} < 0 THEN '-0' ELSE '0' END::float8 "
        f"ELSE ({value})::float8 END"
    )


def with_special(value: str, flags: str) -> str:
    """Return a value with NaN and infinities taking precedence, as in `aggr.exact.number_columns`."""
    return (
        f"CASE WHEN ({flags} & 1) <> 0 OR ({flags} & 6) = 6 THEN 'NaN'::float8 "
        f"WHEN ({flags} & 2) <> 0 THEN 'Infinity'::float8 WHEN ({flags} & 4) <> 0 THEN '-Infinity'::float8 "
        f"ELSE {value} END"
    )


def nearest(total: str, count: str) -> str:
    """Return a quotient of whole numbers rounded half to even; the remainder is adjusted to be at least 0."""
    remainder = f"mod(mod({total}, {count}) + {count}, {count})"
    floor = f"div({total} - {remainder}, {count})"
    up = f"2 * {remainder} > {count} OR (2 * {remainder} = {count} AND mod({floor}, 2) <> 0)"
    return f"({floor} + CASE WHEN {up} THEN 1 ELSE 0 END)"
