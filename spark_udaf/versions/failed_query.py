"""Information about a query that failed: its DataFrame and its plan as text.

If the query collects the values of groups into lists (``collect_list``), `largest_group` returns the group with the
most values. To find this group, the plan of the query is read. The group is therefore unknown on Spark Connect, which
does not provide plans as objects, and for a plan that cannot be read.

To find the DataFrame of the query, the stack is searched: an action, such as ``collect``, is a method of the DataFrame
or of its writer, and this method is still running when PySpark raises the error.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pyspark.sql import functions as F

from spark_udaf.versions.java_objects import query_execution

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

_LIST = "collect_list("


class LargestGroup(NamedTuple):
    """The group with the most values: its keys as text, such as ``host='a', hour=7``, and the number of values."""

    keys_text: str
    value_count: int


def failed_dataframe() -> DataFrame | None:
    """Return the DataFrame whose method is running in the current thread, or None if there is no such DataFrame."""
    frame = sys._getframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if owner is not None and not isinstance(owner, type):
            if hasattr(owner, "mapInArrow"):
                return cast("DataFrame", owner)
            # A writer, such as ``df.write``, stores its DataFrame in the attribute ``_df``.
            df_of_writer = vars(owner).get("_df") if hasattr(owner, "__dict__") else None
            if hasattr(df_of_writer, "mapInArrow"):
                return cast("DataFrame", df_of_writer)
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def plan_text(df: DataFrame) -> str:
    """Return the physical plan of a DataFrame as text."""
    with redirect_stdout(io.StringIO()) as output:
        df.explain()
    return output.getvalue()


def largest_group(df: DataFrame, marker: str, seconds: float) -> LargestGroup | None:
    """Return the group with the most values, if an aggregation of a DataFrame collects the values of groups into lists.

    Parameters
    ----------
    df : DataFrame
    marker : str
        A text in the expression of the list, which identifies the aggregation.
    seconds : float
        The time after which the count is cancelled.

    Returns
    -------
    LargestGroup or None
        None on Spark Connect, for an aggregation without keys, if the plan cannot be read, or if the count takes
        more than ``seconds``.
    """
    groups: list[LargestGroup] = []
    if query_execution(df) is None:
        return None
    context = df.sparkSession.sparkContext
    tag = f"tiltframe-{uuid.uuid4()}"
    is_late = threading.Event()

    def count() -> None:
        try:
            context.addJobTag(tag)
            try:
                group = _count_largest_group(df, marker, is_late)
            finally:
                context.removeJobTag(tag)
        except Exception as error:
            # `_count_largest_group` uses internal parts of Spark, which a release may lack. An error here must not
            # replace the error of the query.
            log = logging.getLogger("spark_udaf")
            log.info("the values of each group cannot be counted: %s", str(error).partition("\n")[0])
            return
        if group is not None:
            groups.append(group)

    thread = threading.Thread(target=count, name="tiltframe-count", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        is_late.set()
        context.cancelJobsWithTag(tag)
    return groups[0] if groups else None


def _count_largest_group(df: DataFrame, marker: str, is_late: threading.Event) -> LargestGroup | None:
    """Return the group with the most values in the first matching aggregation of the DataFrame's plan. An aggregation
    matches if it has keys and the text ``marker`` in a result expression.

    Return None if no aggregation matches, or if the event ``is_late`` is set before the count starts.
    """
    jvm = df.sparkSession.sparkContext._jvm
    plan = query_execution(df).analyzed()  # type: ignore[union-attr]
    for aggregate in _nodes(plan, "Aggregate"):
        marked_expressions = [
            expression for expression in _sequence(aggregate.aggregateExpressions()) if marker in expression.sql()
        ]
        keys = [key.sql() for key in _sequence(aggregate.groupingExpressions())]
        if not marked_expressions or not keys:
            continue
        texts = [call.sql() for call in _nodes(marked_expressions[0], "AggregateExpression")]
        lists = [text for text in texts if text.startswith(_LIST)]
        child = aggregate.child()
        # The aggregated rows may come from a query of a WITH clause. The plan of the rows does not contain the
        # definitions of such queries, so they are added to the plan.
        for with_clause in _nodes(plan, "WithCTE"):
            child = getattr(jvm, "org.apache.spark.sql.catalyst.plans.logical.WithCTE")(child, with_clause.cteDefs())
        java_class = getattr(jvm, df._jdf.getClass().getName())
        rows: Any = type(df)(java_class.ofRows(df._jdf.sparkSession(), child), df.sparkSession)
        key_columns = [F.expr(key).alias(f"key {index}") for index, key in enumerate(keys)]
        value_count = F.expr(f"count({lists[0].removeprefix(_LIST)}").alias("value_count")
        counts = rows.groupBy(*key_columns).agg(value_count).orderBy(F.desc("value_count")).limit(1)
        if is_late.is_set():
            return None
        (row,) = counts.collect()
        return LargestGroup(_key_text(keys, row), row["value_count"])
    return None


def _key_text(keys: list[str], row: Row) -> str:
    names = [key.rpartition(".")[2].strip("`") if "(" not in key else key for key in keys]
    return ", ".join(f"{name}={value!r}" for name, value in zip(names, row, strict=False))


def _nodes(tree: Any, name: str) -> Iterator[Any]:
    """Yield the nodes of a plan or an expression that have the name ``name``."""
    if tree.nodeName() == name:
        yield tree
    for child in _sequence(tree.children()):
        yield from _nodes(child, name)


def _sequence(values: Any) -> list[Any]:
    """Return the elements of a sequence of Scala, an object of the JVM, as a list."""
    return [values.apply(index) for index in range(values.size())]
