"""SQL terms: SQL expressions of PostgreSQL that merge the fields of states and compute exactly with them.

Sums are exact, because they are computed in the type numeric and rounded once. Quotients are computed with many more
digits than a double has, and then rounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from aggr.extend.exact import SPAN
from tiltframe.store.backends.postgres.literals import quoted
from tiltframe.store.backends.postgres.state_columns import column_name

# The smallest positive number that is rounded to infinity.
_ROUNDED_TO_INFINITY = "(2::numeric ^ 1024 - 2::numeric ^ 970)"
# The largest positive number that is rounded to 0: half of the smallest positive double.
_ROUNDED_TO_ZERO = "(5::numeric ^ 1075 * '1e-1075'::numeric)"
_MAX_PLACES = 1000  # the maximum number of decimal places that PostgreSQL computes for a quotient


@dataclass
class SqlAggregates:
    """The SQL aggregates that a subquery computes in the view of a level's results. Each aggregate merges one field of
    states, and is listed once even if several results read it.

    The subquery is called ``m``, its keys ``k0, k1, …`` and its aggregates ``a0, a1, …``, so that they cannot clash
    with names of users.
    """

    names: dict[str, str] = field(default_factory=dict)

    def __call__(self, aggregate: str) -> str:
        return "m." + self.names.setdefault(aggregate, f"a{len(self.names)}")

    def add(self, *path: str) -> str:
        """Return the name of the aggregate that sums a field of whole numbers."""
        return self(f"sum({column_of(*path)})")

    def add_exactly(self, *path: str, scaled: bool = False) -> str:
        """Return the name of the aggregate that adds exact sums, which are stored as digits in base 2^32 with an
        exponent. SQL computes 2^-n as 5^n / 10^n, which is exact.

        If ``scaled`` is true, the sums have the form of `aggr.exact.scaled_sums`: the stored exponent also contains the
        number of decimal places.
        """
        level = column_of(*path, "exponent")
        size = ""
        if scaled:
            # For a sum with ``places`` decimal places, the stored exponent is ``exponent + SPAN * places``, where
            # ``exponent`` is greater than -SPAN / 2. The division by SPAN returns ``places``. SPAN // 2 is added before
            # the division, so that the dividend is positive, because SQL would round a negative quotient up, towards 0.
            places = f"(({level} + {SPAN // 2}) / {SPAN})"
            level = f"({level} - {SPAN} * {places})"
            size = f" * ('1e-' || {places})::numeric"
        power = f"32 * ({level} + l.place - 1)"
        return self(
            f"sum((SELECT coalesce(sum(l.digit{size} * CASE WHEN {power} >= 0 THEN 2::numeric ^ ({power})::numeric "
            f"ELSE 5::numeric ^ (-{power})::numeric * ('1e' || {power})::numeric END), 0) "
            f"FROM unnest({column_of(*path, 'limbs')}) WITH ORDINALITY AS l (digit, place)))"
        )

    def pick(self, value: str, order: str, present: str) -> str:
        """Return the name of an aggregate that returns ``value`` of a single row. This is the first row in the order
        ``order`` in which ``present`` is not null. All three arguments are SQL.
        """
        return self(f"(array_agg({value} ORDER BY {order}) FILTER (WHERE {present} IS NOT NULL))[1]")


def column_of(*path: str) -> str:
    """Return the column that stores a field of a state."""
    return f"s.{quoted(column_name('.'.join(path)))}"


def order_terms(value: str, dtype: pa.DataType, is_descending: bool) -> str:
    """Return the SQL terms of an ORDER BY that sorts values like `aggr.arrow.sort_keys`: -0.0 comes before 0.0,
    although PostgreSQL treats both as equal. ``is_descending`` sorts in descending order.
    """
    term = f"{value} DESC" if is_descending else value
    if not pa.types.is_floating(dtype):
        return term
    # Equal values are sorted by their bytes. The bytes of -0.0 are greater than those of 0.0, because the sign bit
    # comes first.
    sign_term = f"float8send({value})" if is_descending else f"float8send({value}) DESC"
    return f"{term}, {sign_term}"


def quotient(value: str, by: str, root: bool = False, any_size: bool = False) -> str:
    """Return the SQL expression of ``value`` divided by ``by``, or of the square root of this quotient if ``root`` is
    true. The quotient is computed with many more digits than a double has, and is null if ``by`` is 0.

    With ``any_size``, ``by`` may be of any size, and the quotient has 1000 decimal places. For small quotients,
    ``value`` is first multiplied by 2^2200, because half of the smallest double has more than 1000 decimal places.
    """
    places = f"greatest(scale({value}), {_MAX_PLACES})" if any_size else f"scale({value}) + 60"
    function, small, power = ("sqrt", "1e-560", 1100) if root else ("", "1e-280", 2200)
    enlarged = f"{function}(round({value} * 2::numeric ^ 2200, {_MAX_PLACES}) / nullif({by}, 0))"
    return (
        f"(CASE WHEN abs({value}) < abs({by}) * '{small}'::numeric "
        f"THEN {enlarged} * (5::numeric ^ {power} * '1e-{power}'::numeric) "
        f"ELSE {function}(round({value}, {places}) / nullif({by}, 0)) END)"
    )


def round_to_double(value: str) -> str:
    """Return the SQL expression that rounds a numeric value to a double. Values that are rounded to 0 or to infinity
    are not cast, because PostgreSQL's cast raises an error for such values.
    """
    return (
        f"CASE WHEN abs({value}) >= {_ROUNDED_TO_INFINITY} THEN sign({value})::float8 * 'Infinity'::float8 "
        f"WHEN abs({value}) <= {_ROUNDED_TO_ZERO} THEN CASE WHEN {value} < 0 THEN '-0' ELSE '0' END::float8 "
        f"ELSE ({value})::float8 END"
    )


def with_special_values(value: str, flags: str) -> str:
    """Return the SQL expression for a sum. The sum is NaN or an infinity if ``flags`` shows that rows had such values,
    and otherwise ``value``. The rules are those of `aggr.exact.number_columns`.
    """
    return (
        f"CASE WHEN ({flags} & 1) <> 0 OR ({flags} & 6) = 6 THEN 'NaN'::float8 "
        f"WHEN ({flags} & 2) <> 0 THEN 'Infinity'::float8 WHEN ({flags} & 4) <> 0 THEN '-Infinity'::float8 "
        f"ELSE {value} END"
    )


def divide_and_round(total: str, count: str) -> str:
    """Return the SQL expression that divides two whole numbers, ``total / count``, and rounds the quotient to the
    nearest whole number. Halves are rounded to the even number.
    """
    remainder = f"mod(mod({total}, {count}) + {count}, {count})"
    floor = f"div({total} - {remainder}, {count})"
    up = f"2 * {remainder} > {count} OR (2 * {remainder} = {count} AND mod({floor}, 2) <> 0)"
    return f"({floor} + CASE WHEN {up} THEN 1 ELSE 0 END)"
