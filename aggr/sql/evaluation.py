"""Evaluation of SQL over tables: the mask of the rows for which a condition is true, the values of an expression, and
a condition as an Arrow expression.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import expressions as exp

from aggr.arguments import listed, shortened, shown
from aggr.arrays import Flags
from aggr.sql.column_names import column_in
from aggr.sql.function_table import Compiler
from aggr.sql.number_columns import Use, number_column, text_column
from aggr.sql.parse import CONDITION, EXPRESSION, parse_sql
from aggr.sql.term import Fields, Rows, Term
from aggr.sql.uses import use_of, uses_among
from aggr.sql.zones import UTC

# The maximum number of references to columns in an expression of Arrow. Arrow evaluates expressions recursively, and a
# somewhat larger number would overflow the stack.
_MAX_REFERENCES = 6000


def check_condition(text: str, schema: pa.Schema | None = None) -> None:
    """Check that a condition is valid, without evaluating it.

    Parameters
    ----------
    text : str
        An SQL condition, as described in `docs/conditions.md`.
    schema : pa.Schema, optional
        The schema of the rows. If it is passed, columns and types are checked as well.

    Raises
    ------
    ValueError
        If the condition cannot be parsed. With a schema, also if it names a column that does not exist, compares values
        of incompatible types, or is not boolean.

    Examples
    --------
    >>> check_condition("status >= 500", pa.schema([("status", pa.int64())]))
    """
    parse_sql(text)
    if schema is not None:
        _compile_condition(text, schema)


def rows_where(condition: str, table: pa.Table | pa.RecordBatch, timezone: str = UTC) -> Flags:
    """Return a mask of the rows for which a condition is true, rather than false or null.

    Parameters
    ----------
    condition : str
        An SQL condition, as described in `docs/conditions.md`.
    table : table or batch
    timezone : str
        The IANA name of the time zone in which times are interpreted.

    Returns
    -------
    array of bool, shape (rows,)

    Raises
    ------
    ValueError
        If the condition cannot be parsed, names a column that does not exist, or compares values of incompatible types.

    Examples
    --------
    >>> rows_where("status >= 500", pa.table({"status": [200, 503, None]}))
    array([False,  True, False])
    """
    term = _compile_condition(condition, table.schema, timezone)
    is_true = _evaluate_term(term, condition, table, CONDITION).cast(pa.bool_())
    rows: Flags = pc.fill_null(is_true, False).to_numpy(zero_copy_only=False)
    return rows


def evaluate(text: str, table: pa.Table | pa.RecordBatch, timezone: str = UTC, use: Use = Use.KEEP) -> pa.Array:
    """Compute a value for every row.

    Parameters
    ----------
    text : str
        An SQL expression, such as ``"price * quantity"`` or ``"lower(route)"``.
    table : table or batch
    timezone : str
        The IANA name of the time zone in which times are interpreted.
    use : Use
        How the caller uses the values. It has an effect only if the table contains a column twice, as text and as
        numbers; see `aggr.sql.number_columns`.

    Returns
    -------
    array, one value per row
        The type is the one that `value_type` returns.

    Raises
    ------
    ValueError
        If the expression cannot be parsed or computed.

    Examples
    --------
    >>> evaluate("price * 2", pa.table({"price": [1.5, None]})).to_pylist()
    [3.0, None]
    """
    term = _compile(text, table.schema, EXPRESSION, timezone=timezone, use=use)
    values = _evaluate_term(term, text, table, EXPRESSION)
    return values.cast(value_type(text, table.schema, use)) if pa.types.is_timestamp(values.type) else values


def value_type(text: str, schema: pa.Schema, use: Use = Use.KEEP) -> pa.DataType:
    """Return the type of the values that `evaluate` computes for tables with a schema.

    Parameters
    ----------
    text : str
        An SQL expression; see `evaluate`.
    schema : pa.Schema
    use : Use
        See `evaluate`.

    Returns
    -------
    pa.DataType

    Raises
    ------
    ValueError
        If the expression cannot be parsed, names a column that does not exist, or combines incompatible types.

    Examples
    --------
    >>> value_type("price * quantity", pa.schema([("price", pa.float64()), ("quantity", pa.int32())]))
    DataType(double)
    """
    dtype = _compile(text, schema, EXPRESSION, use=use).type
    # `evaluate` casts all times with a zone to UTC. The instants stay the same.
    return pa.timestamp(dtype.unit, UTC) if pa.types.is_timestamp(dtype) and dtype.tz else dtype


def to_expression(condition: str, schema: pa.Schema) -> pc.Expression:
    """Compile a condition to an expression of Arrow, with which files and datasets can be filtered.

    Parameters
    ----------
    condition : str
        An SQL condition, as described in `docs/conditions.md`.
    schema : pa.Schema
        The schema of the data to filter.

    Returns
    -------
    pyarrow.compute.Expression
        The expression is true for the same rows as `rows_where`. For zones with changes of the UTC offset, it may
        differ from `rows_where` after 2037.

    Raises
    ------
    ValueError
        If the condition cannot be parsed, names a column that does not exist, compares values of incompatible types, or
        contains more than 6,000 references to columns, which Arrow could not evaluate.

    Examples
    --------
    >>> to_expression("status >= 500", pa.schema([("status", pa.int64())]))
    <pyarrow.compute.Expression (status >= 500)>
    """
    reference_count = sum(1 for _ in parse_sql(condition).find_all(exp.Column))
    if reference_count > _MAX_REFERENCES:
        raise ValueError(
            f"the condition {shortened(condition)!r} names columns {reference_count:,} times, and at most "
            f"{_MAX_REFERENCES:,} are allowed in a filter of files; write alternatives as IN (…)"
        )
    return _compile_condition(condition, schema).evaluate(Fields(schema))


def _compile_condition(text: str, schema: pa.Schema, timezone: str = UTC) -> Term:
    term = _compile(text, schema, CONDITION, timezone)
    if not pa.types.is_boolean(term.type) and not term.is_untyped_null:
        raise ValueError(
            f"the condition {shortened(text)!r} has values of type {term.type}; a condition must be true or false"
        )
    return term


def _compile(text: str, schema: pa.Schema, what: str, timezone: str = UTC, use: Use = Use.KEEP) -> Term:
    parse_sql(text, what)
    names = tuple(name for name, _ in uses_among(text, schema.names, what))
    columns = dict.fromkeys(column_in(name, schema.names) or name for name in names)
    columns |= dict.fromkeys(numbers for name in names if (numbers := number_column(name)) in schema.names)
    for name in columns:
        if schema.get_field_index(name) < 0:
            problem = "which occurs several times" if name in schema.names else "which does not exist"
            names_listed = listed(list(dict.fromkeys(map(text_column, schema.names))))
            raise ValueError(
                f"the {what} {shortened(text)!r} names the column {shown(name)}, {problem}; there are {names_listed}"
            )
    fields = [schema.field(name).remove_metadata() for name in columns]
    return _compile_cached(text, pa.schema(fields), what, timezone=timezone, use=use)


@lru_cache(maxsize=256)
def _compile_cached(text: str, schema: pa.Schema, what: str, timezone: str, use: Use) -> Term:
    try:
        return Compiler(schema, timezone, use, use_of).term(parse_sql(text, what))
    except (pa.ArrowException, ValueError, OverflowError, TypeError) as error:
        raise ValueError(f"cannot compute the {what} {shortened(text)!r}: {_reason_of_error(error)}") from None
    except RecursionError:
        raise ValueError(
            f"the {what} {shortened(text)!r} is nested too deeply; leave out parentheses that are not needed, and "
            "write a choice of values as IN (…)"
        ) from None


def _evaluate_term(term: Term, text: str, table: pa.Table | pa.RecordBatch, what: str) -> pa.Array:
    try:
        value = term.evaluate(Rows(table))
    except (pa.ArrowException, ValueError, OverflowError, TypeError) as error:
        raise ValueError(f"cannot compute the {what} {shortened(text)!r}: {_reason_of_error(error)}") from None
    if isinstance(value, pa.Scalar):
        return pa.repeat(value, table.num_rows)
    return value


def _reason_of_error(error: Exception) -> str:
    message = str(error).splitlines()[0]
    if not isinstance(error, pa.ArrowException):
        return message
    if "overflow" in message or "too large" in message or "precision" in message or "not in range" in message:
        return "an intermediate result is too large for its type; CAST an operand to DOUBLE"
    return message
