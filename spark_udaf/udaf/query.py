"""sql: run queries in Spark's SQL that call this library's functions, or answer queries from a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from aggr import Function
from aggr.arguments import checked_truth, is_name, shown
from aggr.registry import functions as registered_functions
from spark_udaf.udaf.bounded_lists import max_list_values
from spark_udaf.udaf.job_errors import explain_task_errors
from spark_udaf.udaf.sql import Family, families, registered_families
from spark_udaf.versions.sql_udfs import sql_udf
from tiltframe import FrameStore


def sql(
    first: SparkSession | str,
    second: str | FrameStore | None = None,
    spark: SparkSession | None = None,
    *,
    exact: bool = True,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
) -> DataFrame:
    """Run a query that calls functions of this library, ``su.sql(spark, query)``, or answer a query from a store,
    ``su.sql(query, store)``.

    Parameters
    ----------
    first, second : a session and a query, or a query and a store
        A query of a session is any query in Spark's SQL. Its calls of ``aggr_dds(x)`` and the like may be mixed
        with Spark's own aggregates and have ``DISTINCT`` and ``FILTER (WHERE …)``. The functions are registered when
        needed. Each call reads a list of its group's values, so that Python is called once for thousands of groups.

        A query that a store answers is ``SELECT … FROM table [WHERE …] [GROUP BY …] [HAVING …] [ORDER BY …] [LIMIT n]``
        of a table or view of the session. Groups are ``window(ts, '1 hour')`` or ``date_trunc('hour', ts)``, and keys
        of the frame. Conditions use only keys, or compare the time by ``>=`` and ``<`` with the start of a window.
        Aggregates are ``count``, ``min`` and ``max``, and ``sum`` of whole numbers and decimals. The store must contain
        the rows of the table, and be accessible to the driver and to tasks.
    spark : SparkSession, optional
        For a query and a store; by default the active session.
    exact : bool
        For a query and a store. With ``exact=False``, the store also answers queries with ``avg``, or with ``sum`` of
        doubles. Spark rounds their sums at every row, in an order that may change, and a store rounds once. The results
        may therefore differ in the last digits.
    args : dict or list, optional
        For a session and a query, the values of the query's parameters, as in ``spark.sql(query, args)``: a dict from
        the names of parameters ``:name``, or a list of values for the markers ``?``.

    Returns
    -------
    DataFrame
        With a store, the columns have the same names and types as those of ``spark.sql(query)``. With a session, a
        result that calls functions of this library and has no alias is named by its text in the query.

    Raises
    ------
    ValueError
        If the store cannot give the same answer (the message names the part of the query), if a call of a function of
        several columns has ``DISTINCT``, if a call has no column or reads a stream, if a function of this library is
        called without ``aggr_``, or if ``args`` has too few values.
    TypeError
        If the arguments have neither of the two forms, a session and a query, or a query and a store.
    AnalysisException
        If Spark rejects the query.

    Guarantee
    ---------
    With a store and ``exact=True``, the result equals ``spark.sql(query)`` over the rows of the store. With a session,
    a group whose list does not fit into the memory of a task fails the query with an error that names the call.

    Examples
    --------
    The documentation has a tested example::

        su.sql(spark, "SELECT host, max(ms), aggr_dds(ms) FILTER (WHERE status = 200) FROM requests GROUP BY host")
        su.sql("SELECT host, count(*) FROM requests GROUP BY host", store)
    """
    # These modules are imported only when they are needed. They import sqlglot, which takes a tenth of a second, and
    # each Python worker of Spark imports this package.
    from spark_udaf.store.rewritten_sql import store_sql
    from spark_udaf.udaf.checked_calls import check_calls
    from spark_udaf.udaf.list_sql import with_lists
    from spark_udaf.udaf.query_arguments import name_arguments

    if isinstance(first, str):
        if second is None or isinstance(second, str):
            raise TypeError(
                f"su.sql needs a session or a store; got {shown(first)} and {shown(second)}; write su.sql(spark, "
                "query), or su.sql(query, store) to answer the query from a store"
            )
        if args is not None:
            raise TypeError("the argument args is for su.sql(spark, query); with a store, write values into the query")
        return store_sql(first, second, spark, exact=checked_truth(exact, "exact"))
    if not hasattr(first, "createDataFrame") or isinstance(first, type) or not is_name(second):
        raise TypeError(f"write su.sql(spark, query), or su.sql(query, store); got {shown(first)} and {shown(second)}")
    if spark is not None:
        raise TypeError(f"write su.sql(spark, query), with parameters as args=…; got {shown(spark)} as third argument")
    explain_task_errors()
    functions, families_by_function = _functions(registered_functions(), registered_families())
    query, arguments = name_arguments(str(second), args)
    check_calls(first, query, arguments, functions=functions, families=families_by_function)
    text, called_functions = with_lists(query, functions, max_list_values(first))
    called_families = [families_by_function[name] for name in called_functions if name in families_by_function]
    for family in {id(family): family for family in called_families}.values():
        for name, udf in family.udfs().items():
            if name in called_functions:
                first.udf.register(name, sql_udf(udf))
    try:
        result = first.sql(text, arguments)
    except AnalysisException as error:
        name = (error.getMessageParameters() or {}).get("routineName", "").strip("`").lower()
        if f"aggr_{name}" not in families_by_function:
            raise
        raise ValueError(
            f"{name} is not a function of Spark; use aggr_{name}, the name of this library's function in SQL"
        ) from None
    library_functions = called_functions.intersection(families_by_function)
    if library_functions and result.isStreaming:
        raise ValueError(
            f"the query calls {min(library_functions)} over a stream, whose groups never end; use su.stream(df, frame) "
            "to emit windows, or su.stream_into(df, store, …) to write them to a store that can be queried"
        )
    return result


@lru_cache(maxsize=1)
def _functions(
    classes: tuple[type[Function], ...], registered: tuple[Family, ...]
) -> tuple[dict[str, Function], dict[str, Family]]:
    """Return two dicts whose keys are names of SQL functions. The first dict maps each SQL function that aggregates
    rows or merges states to its function of `aggr`. The second dict maps every SQL function to its family: the SQL
    functions that are made from one function of `aggr`.

    ``classes`` contains the classes of all registered functions of `aggr`. ``registered`` contains families that
    `register` has added. A family whose function is not registered any more is left out.
    """
    functions: dict[str, Function] = {}
    families_by_function: dict[str, Family] = {}
    current_families = [family for family in registered if type(family.function) in classes]
    for family in [*current_families, *families()]:
        functions |= dict.fromkeys(family.aggregate_names, family.function)
        families_by_function |= dict.fromkeys(family.names, family)
    return functions, families_by_function
