"""The names by which conditions and sort orders refer to results and to the fields of records.

    latency {mean, quantiles {0.99}}
        ──▶  latency_mean  latency_p99                                              as flat results name them
             latency.mean  latency['mean']  latency.quantiles['0.99']               by their path

A column takes precedence over a field of the same name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa

from aggr import sql
from aggr.arguments import is_name, nearest, shown
from aggr.arrays import Flags
from aggr.arrow import compute as pc
from aggr.measure import Measure
from aggr.tables.flat_results import leaves

_TRIED_TYPES = (pa.float64(), pa.int64(), pa.timestamp("us", "UTC"), pa.string(), pa.bool_(), pa.binary())


def paths_of_results(schema: pa.Schema) -> dict[str, list[str]]:
    """Return the names of all results and of their fields, as name → path: the column and the fields inside it.

    >>> schema = pa.schema([("n", pa.int64()), ("p", pa.struct([("mean", pa.float64())]))])
    >>> paths_of_results(schema)
    {'n': ['n'], 'p_mean': ['p', 'mean'], 'p.mean': ['p', 'mean']}
    """
    paths = {field.name: [field.name] for field in schema if not pa.types.is_struct(field.type)}
    fields = [
        (flat, [field.name, *path]) for field in schema for path, flat, _ in leaves(field.name, field.type) if path
    ]
    for flat, path in fields:
        paths.setdefault(flat, path)
    for _, path in fields:
        paths.setdefault(".".join(path), path)
    return paths


def flat_names(schema: pa.Schema) -> list[str]:
    """Return the names of the columns that flat results of a schema have, in their order."""
    return list(dict.fromkeys(flat for field in schema for _, flat, _ in leaves(field.name, field.type)))


def names_read(text: str, what: str, names: Collection[str], candidates: Iterable[str]) -> tuple[str, ...]:
    """Return the names that a condition or an expression reads.

    The text is parsed as a condition if ``what`` equals "having", otherwise as an expression. Raise ``ValueError`` for
    a name that is not in ``names``. The message begins with ``what``, and suggests one of ``candidates``.
    """
    read = sql.columns_of(text, "condition" if what == "having" else "expression")
    for name in read:
        if name not in names:
            raise ValueError(f"{what} reads {shown(name)}, which is not a result; {nearest(name, candidates)}")
    return read


def check_having(having: str | None, schema: pa.Schema, timezone: str = "UTC") -> None:
    """Raise ``ValueError`` unless ``having`` is a condition that can be evaluated for results of a schema."""
    if having is None:
        return
    if not is_name(having):
        raise ValueError(f"having must be a condition on results, such as 'requests > 100'; got {shown(having)}")
    results_where(having, schema.empty_table(), timezone)


def results_where(having: str, results: pa.Table, timezone: str = "UTC") -> Flags:
    """Return a mask of the rows of results for which a condition is true. Times are interpreted in ``timezone``."""
    return sql.rows_where(having, _columns_read(having, "having", results), timezone)


def result_values(
    text: str, results: pa.Table, timezone: str = "UTC", purpose: str = "order by"
) -> pa.ChunkedArray | pa.Array:
    """Return one value per row: the result called ``text``, or the value of ``text`` as an expression over results.

    Raise ``ValueError`` if ``text`` is neither a name nor an expression. The message contains ``purpose``, the purpose
    of the values, such as "order by".
    """
    paths = paths_of_results(results.schema)
    if text in paths:
        return _column(results, paths[text])
    try:
        if not names_read(text, "it", paths, flat_names(results.schema)):
            raise ValueError(f"the expression does not read a result; {nearest(text, flat_names(results.schema))}")
        return sql.evaluate(text, _columns_read(text, "it", results), timezone)
    except ValueError as error:
        raise ValueError(f"cannot {purpose} {shown(text)}: {error}") from None


def check_having_names(having: str | None, columns: Iterable[str], measures: dict[str, Measure]) -> None:
    """Raise ``ValueError`` if a condition contains an unknown name. The types of the rows need not be known.

    ``columns`` are the result columns that are not measures.
    """
    if having is None:
        return
    field_of_measure = {name: _field_of_measure(name, measure) for name, measure in measures.items()}
    fields = [field for field in field_of_measure.values() if field is not None]
    measures_with_unknown_fields = tuple(name for name, field in field_of_measure.items() if field is None)
    schema = pa.schema([*(pa.field(name, pa.null()) for name in columns), *fields])
    result_names = {
        *paths_of_results(schema),
        *(name for name in sql.columns_of(having) if name.startswith(measures_with_unknown_fields)),
    }
    names_read(having, "having", result_names, flat_names(schema))


def _field_of_measure(name: str, measure: Measure) -> pa.Field | None:
    """Return the field of a measure's results for the first type in `_TRIED_TYPES` that the measure accepts, or None.

    The input type may affect the type of the field, but not the names of its inner fields.
    """
    for dtype in _TRIED_TYPES:
        try:
            schema = pa.schema([(column, dtype) for column in measure.columns()])
            state = measure.function.state_type(measure.input_type(schema, _TRIED_TYPES[2]))
            return pa.field(name, measure.function.result_type(state))
        except (ValueError, TypeError, KeyError):
            continue
    return None


def _columns_read(text: str, what: str, results: pa.Table) -> pa.Table:
    """Return a table of the results and fields that a text reads, under the names in the text.

    If the text does not read a result, the table has the first column of the results, so that the table has as many
    rows as the results.
    """
    paths = paths_of_results(results.schema)
    read = names_read(text, what, paths, flat_names(results.schema))
    return pa.table({name: _column(results, paths[name]) for name in read}) if read else results.select([0])


def _column(results: pa.Table, path: list[str]) -> pa.ChunkedArray:
    column = results.column(path[0])
    return column if len(path) == 1 else pc.struct_field(column, path[1:])
