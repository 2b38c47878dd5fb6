"""Expressions over results: measures that are computed from other results of the same window, and have no states.

measures      errors = 1   n = 4            computed from states
expressions   rate = errors / n  ──▶ 0.25   computed from results, when results are read
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

import pyarrow as pa

from aggr import sql
from aggr.arguments import nearest, shown
from aggr.measure import Measure
from aggr.tables.result_names import result_values


def is_expression(text: object) -> bool:
    """Return whether a value is the text of an expression over results.

    Such an expression reads columns, and does not contain an aggregate function.

    >>> is_expression("errors / n"), is_expression("count(x)"), is_expression(3)
    (True, False, False)
    """
    if not isinstance(text, str):
        return False
    try:
        return bool(sql.columns_of(text, "expression"))
    except ValueError:
        return False


def split_results(results: Mapping[str, object]) -> tuple[dict[str, Measure], dict[str, str]]:
    """Return two dicts by name: the measures in ``results``, and the expressions over results.

    Raises ``ValueError`` for a value that is neither a measure nor an expression over results.
    """
    measures = dict[str, Measure]()
    expressions = dict[str, str]()
    for name, result in results.items():
        if isinstance(result, Measure):
            measures[name] = result
        elif isinstance(result, str) and is_expression(result):
            expressions[name] = result
        else:
            raise ValueError(
                f"the measure {shown(name)} must be made by aggr, such as aggr.sum('x'), or be an expression of other "
                f"measures, such as 'errors / requests'; got {shown(result)}"
            )
    return measures, expressions


def results_read(text: str, names: Collection[str]) -> dict[str, list[str]]:
    """Return the names that an expression reads, each with the results in ``names`` that it may refer to.

    A name refers to the result of this name. If there is no such result, it may refer to a field of a result, and
    several results are possible.

    >>> results_read("p_mean + n - host", ["p", "n"])
    {'p_mean': ['p'], 'n': ['n'], 'host': []}
    """
    names_read: dict[str, list[str]] = {}
    for name in sql.columns_of(text, "expression"):
        prefixes = (result for result in names if name.startswith((f"{result}_", f"{result}.")))
        names_read[name] = [name] if name in names else list(prefixes)
    return names_read


def order_expressions(
    expressions: Mapping[str, str], names: Collection[str], other_columns: Collection[str]
) -> list[str]:
    """Return the names of expressions in an order in which each can be computed from the results before it.

    Parameters
    ----------
    expressions : name -> text
    names : collection of str
        The names of all results, including those of the expressions.
    other_columns : collection of str
        The columns of results that are not measures, such as keys. An expression may also read these columns and their
        fields.

    Returns
    -------
    list of str

    Raises
    ------
    ValueError
        If an expression reads a name that is not a result, or expressions read each other in a circle.

    Examples
    --------
    >>> order_expressions({"percent": "rate * 100", "rate": "errors / n"}, ["errors", "n", "rate", "percent"], [])
    ['rate', 'percent']
    """
    dependencies: dict[str, Iterable[str]] = {}
    for name, text in expressions.items():
        names_read = results_read(text, names)
        for column, results in names_read.items():
            if not results and sql.column_in(column, other_columns) is None:
                candidates = [other for other in names if other != name]
                raise ValueError(
                    f"{name} reads {shown(column)}, which is not a result; {nearest(column, candidates)}; write an "
                    f"expression of columns inside a measure, such as aggr.sum({shown(text)})"
                )
        dependencies[name] = [base for results in names_read.values() for base in results if base in expressions]
    try:
        return list(TopologicalSorter(dependencies).static_order())
    except CycleError as error:
        circle = " → ".join(error.args[1])
        raise ValueError(f"the expressions {circle} read each other; compute one of them from other measures") from None


def with_expressions(
    results: pa.Table, expressions: Mapping[str, str], timezone: str, order: Sequence[str] | None = None
) -> pa.Table:
    """Return results with the columns of expressions, which are computed one after another.

    An expression may read the expressions before it. By default, the new columns come last. ``order`` may be a list of
    the names of all results. Columns that are not results, such as keys, then come first, and the results follow in the
    order of the list.

    >>> results = pa.table({"errors": [1], "n": [4]})
    >>> with_expressions(results, {"rate": "errors / n", "percent": "rate * 100"}, "UTC").to_pylist()
    [{'errors': 1, 'n': 4, 'rate': 0.25, 'percent': 25.0}]
    """
    for name, text in expressions.items():
        results = results.append_column(name, result_values(text, results, timezone, f"compute {name}:"))
    if order is None:
        return results
    return results.select([*(name for name in results.column_names if name not in order), *order])
