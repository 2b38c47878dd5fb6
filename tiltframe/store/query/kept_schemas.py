"""Kept schemas: schemas of results, kept in memory, because a repeated query has the same schema."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from tiltframe.store.log.manifest import Manifest
    from tiltframe.store.query.plan import QueryPlan
    from tiltframe.store.query.query import Query

# the number of schemas in memory; a dashboard repeats a few dozen queries
_MAX_SCHEMAS = 128


def kept_schema(manifest: Manifest, plan: QueryPlan, query: Query, compute: Callable[[], pa.Schema]) -> pa.Schema:
    """Return the schema of the results of a query, which ``compute`` returns. ``compute`` is not called if it has
    returned the schema of an equal query before. The range and the time of the queries may differ.
    """
    request = _SchemaRequest(_description(manifest, plan, query), manifest, compute)
    # The types of derived keys may change, because their values come from a source outside the store.
    if plan.derived_keys or not _is_hashable(request):
        return compute()
    return _compute(request)


@dataclass(frozen=True)
class _SchemaRequest:
    """A request for the schema of a query. Requests are equal if their descriptions are equal."""

    description: Hashable
    manifest: Manifest = field(compare=False)
    compute: Callable[[], pa.Schema] = field(compare=False)


def _description(manifest: Manifest, plan: QueryPlan, query: Query) -> Hashable:
    """Return a value that determines the schema of results. It does not depend on the range and the time of a query, so
    that the schema of a repeated query of another range is not computed again.
    """
    return (
        id(manifest),  # The cache contains the manifest, so no other manifest gets the same id meanwhile.
        plan.keys,
        tuple(plan.measures.items()),
        tuple(plan.results.items()),
        plan.where,
        plan.timezone,
        query.fill,
        query.having,
        query.order_by,
        query.flat,
    )


def _is_hashable(request: _SchemaRequest) -> bool:
    try:
        hash(request)
    except TypeError:  # A parameter of a function, such as a list, has no hash value.
        return False
    return True


@lru_cache(maxsize=_MAX_SCHEMAS)
def _compute(request: _SchemaRequest) -> pa.Schema:
    return request.compute()
