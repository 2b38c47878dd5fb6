"""SQL terms: how fields of states are merged in PostgreSQL, and exact arithmetic on the merged fields.

Sums are exact, added up as numeric and rounded once; quotients are taken to many more places than a double has, and
then rounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from aggr.exact.scaled_sums import SPAN
from tiltframe.store.backends.sql.literals import quoted
from tiltframe.store.backends.sql.state_columns import column_name

_LARGEST = "(2::numeric ^ 1024 - 2::numeric ^ 970)"  # what rounds to it, is infinite
_SMALLEST = "(5::numeric ^ 1075 * '1e-1075'::numeric)"  # half of the least double
_PLACES = 1000  # of a quotient, as many as PostgreSQL computes


@dataclass
class Merged:
    """The merged fields of a level's states, by the aggregate that merges each, so that none is computed twice.

    Inside the view keys are called ``k0, k1, …`` and aggregates ``a0, a1, …``, all of the subquery ``m``: no name of a
    user's is there.
    """

    names: dict[str, str] = field(default_factory=dict)

    def __call__(self, aggregate: str) -> str:
        return "m." + self.names.setdefault(aggregate, f"a{len(self.names)}")

    def add(self, *path: str) -> str:
        """Add up the whole numbers of a field."""
        return self(f"sum({column_of(*path)})")

    def add_exactly(self, *path: str, scaled: bool = False) -> str:
        """Add up exact sums: digits times powers of 2^32, where a negative power is 5^n / 10^n.

        ``scaled`` ones have decimal places in their exponents, as `aggr.exact.scaled_sums` writes them.
        """
        level, size = column_of(*path, "exponent"), ""
        if scaled:
            places = f"(({level} + {SPAN // 2}) / {SPAN})"  # SQL cuts towards 0, and no level is below -SPAN / 2
            level, size = f"({level} - {SPAN} * {places})", f" * ('1e-' || {places})::numeric"
        power = f"32 * ({level} + l.place - 1)"
        return self(
            f"sum((SELECT coalesce(sum(l.digit{size} * CASE WHEN {power} >= 0 THEN 2::numeric ^ ({power})::numeric "
            f"ELSE 5::numeric ^ (-{power})::numeric * ('1e' || {power})::numeric END), 0) "
            f"FROM unnest({column_of(*path, 'limbs')}) WITH ORDINALITY AS l (digit, place)))"
        )

    def pick(self, value: str, order: str, present: str) -> str:
        """Choose the first value in an order."""
        return self(f"(array_agg({value} ORDER BY {order}) FILTER (WHERE {present} IS NOT NULL))[1]")


def column_of(*path: str) -> str:
    """Name the column of a field of a state."""
    return f"s.{quoted(column_name('.'.join(path)))}"


def in_order(value: str, dtype: pa.DataType, down: bool) -> str:
    """Order values as `aggr.arrow.sort_keys` does: -0.0, which PostgreSQL takes as equal to 0.0, comes before it."""
    sign = f", float8send({value}){'' if down else ' DESC'}" if pa.types.is_floating(dtype) else ""
    return value + (" DESC" if down else "") + sign


def quotient(value: str, by: str, root: bool = False, any_size: bool = False) -> str:
    """Divide, and take the square root if asked, to many more places than a double has; by zero gives null.

    By a number of any size to 1000 places. Of small quotients 2^2200 times the value is divided: halves of the least
    doubles have more places than that.
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
    """Round a numeric to a double; PostgreSQL refuses what becomes 0, which keeps its sign, or infinite."""
    return (
        f"CASE WHEN abs({value}) >= {_LARGEST} THEN sign({value})::float8 * 'Infinity'::float8 "
        f"WHEN abs({value}) <= {_SMALLEST} THEN CASE WHEN {value} < 0 THEN '-0' ELSE '0' END::float8 "
        f"ELSE ({value})::float8 END"
    )


def with_special(value: str, flags: str) -> str:
    """Let NaN and the infinities win, as in `aggr.exact.number_columns`."""
    return (
        f"CASE WHEN ({flags} & 1) <> 0 OR ({flags} & 6) = 6 THEN 'NaN'::float8 "
        f"WHEN ({flags} & 2) <> 0 THEN 'Infinity'::float8 WHEN ({flags} & 4) <> 0 THEN '-Infinity'::float8 "
        f"ELSE {value} END"
    )


def nearest(total: str, count: str) -> str:
    """Divide whole numbers, rounding half to even; the rest of the division is made to be from 0."""
    remainder = f"mod(mod({total}, {count}) + {count}, {count})"
    floor = f"div({total} - {remainder}, {count})"
    up = f"2 * {remainder} > {count} OR (2 * {remainder} = {count} AND mod({floor}, 2) <> 0)"
    return f"({floor} + CASE WHEN {up} THEN 1 ELSE 0 END)"
