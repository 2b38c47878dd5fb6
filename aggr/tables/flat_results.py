"""Flat results have a separate column for each field of a record. The columns have the same names wherever results are
read.

    latency {count, mean, quantiles {0.5, 0.99, 0.999}}
        ──▶  latency_count  latency_mean  latency_p50  latency_p99  latency_p99_9

The name of a column consists of the names of the record and of the field, joined by ``_``. The name of a quantile is
its percentile, with ``_`` in place of the point.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

import pyarrow as pa

from aggr.arrow import compute as pc

_QUANTILES = "quantiles"


def flattened(results: pa.Table) -> pa.Table:
    """Return results in which each record is replaced by one column per field.

    If a record is null, the values of its columns are null. Other columns are unchanged. Raise ``ValueError`` if two
    columns would have the same name.

    >>> record = {"count": 2, "quantiles": {"0.5": 1.0, "0.999": 2.0}}
    >>> flattened(pa.table({"host": ["a"], "latency": [record]})).to_pylist()
    [{'host': 'a', 'latency_count': 2, 'latency_p50': 1.0, 'latency_p99_9': 2.0}]
    """
    schema = flat_schema(results.schema)
    columns = [
        results.column(field.name) if not path else pc.struct_field(results.column(field.name), list(path))
        for field in results.schema
        for path, _, _ in leaves(field.name, field.type)
    ]
    return pa.table(columns, schema=schema)


def flat_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of `flattened` for results of a schema. Raise ``ValueError`` if two names would be equal."""
    fields: dict[str, pa.Field] = {}
    for field in schema:
        for path, name, dtype in leaves(field.name, field.type):
            if name in fields:
                raise ValueError(
                    f"flat results would have two columns {name!r}; rename the key or the measure {field.name!r}"
                )
            fields[name] = pa.field(name, dtype) if path else field
    return pa.schema(list(fields.values()), schema.metadata)


def percentile_name(quantile: str) -> str:
    """Return the name of a quantile in flat results, such as ``p99`` for ``"0.99"``.

    >>> [percentile_name(q) for q in ("0.5", "0.999", "1", "0.145", "1e-05")]
    ['p50', 'p99_9', 'p100', 'p14_5', 'p0_001']
    """
    return f"p{(Decimal(quantile) * 100).normalize():f}".replace(".", "_")


def leaves(name: str, dtype: pa.DataType, path: Sequence[str] = ()) -> Iterator[tuple[list[str], str, pa.DataType]]:
    """Yield the path, the flat name and the type of each innermost field of a column.

    Innermost fields are not records. ``name`` and ``dtype`` are those of the column. A column that is not a record is
    its only innermost field.
    """
    if not pa.types.is_struct(dtype):
        yield list(path), name, dtype
        return
    for field in dtype:
        if field.name == _QUANTILES and pa.types.is_struct(field.type):
            for quantile in field.type:
                yield [*path, _QUANTILES, quantile.name], f"{name}_{percentile_name(quantile.name)}", quantile.type
        else:
            yield from leaves(f"{name}_{field.name}", field.type, [*path, field.name])
