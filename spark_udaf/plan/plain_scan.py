"""scan_of: scan the Parquet files of a DataFrame that only selects rows and columns.

The plan of the DataFrame is read from classic Spark. If a part of the plan is not supported, `scan_of` raises
`NotPlain`.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import operator
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from spark_udaf.plan.scan import ParquetScan, scan_parquet
from spark_udaf.plan.schema import spark_schema
from spark_udaf.versions.java_objects import query_execution

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OPTIONS = {"path", "paths", "basepath", "mergeschema", "recursivefilelookup", "pathglobfilter"}
_SETTINGS = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")
_COMPARISONS = {
    "EqualTo": operator.eq,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
}
_MIRRORED = {operator.lt: operator.gt, operator.le: operator.ge, operator.gt: operator.lt, operator.ge: operator.le}
_MAX_VALUES = 100  # the maximum number of values of an IN condition; with more, `scan_of` raises an error
_PARQUET = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
_FILE_INDEX = "org.apache.spark.sql.execution.datasources.InMemoryFileIndex"


class NotPlain(ValueError):
    """Raised for a DataFrame that does more than select rows and columns of Parquet files.

    The message names the operation that is not supported.
    """


def scan_of(df: DataFrame) -> ParquetScan:
    """Return a scan of the Parquet files of a DataFrame that only selects rows and columns.

    Parameters
    ----------
    df : DataFrame
        A DataFrame of classic Spark: `spark.read.parquet` of local files, columns selected by name, and conditions that
        compare columns with values: ``=``, ``<``, ``<=``, ``>``, ``>=``, ``IN``, ``IS NULL``, ``AND``, ``OR``, ``NOT``.

    Returns
    -------
    ParquetScan
        A scan that reads the same rows of the same files in the tasks, without the JVM.

    Raises
    ------
    NotPlain
        A ``ValueError`` that names the unsupported part of the plan.
    TypeError
        If ``df`` is not a DataFrame.

    Guarantee
    ---------
    The scan has the same rows as the DataFrame. Conditions compare NaN as Spark does: NaN is greater than all numbers.

    Examples
    --------
    The documentation has a tested example::

        states = su.rollup(su.scan_of(spark.read.parquet("logs/requests").where("day >= '2024-05-01'")), frame)
    """
    if not hasattr(df, "mapInArrow") or isinstance(df, type):
        raise TypeError(f"expected a Spark DataFrame; got {df!r}")
    try:
        return _plain_scan(df)
    except NotPlain as reason:
        raise NotPlain(
            f"cannot read the files of this DataFrame in tasks: {reason}; pass the DataFrame itself"
        ) from None


def is_cached(df: DataFrame) -> bool:
    """Return whether Spark has cached a DataFrame. The cached rows may differ from the rows in the files now."""
    level = df.storageLevel
    return bool(level.useMemory or level.useDisk or level.useOffHeap)


def _plain_scan(df: DataFrame) -> ParquetScan:
    """Return the scan that `scan_of` returns. If the files cannot be scanned, raise `NotPlain` with the reason, which
    `scan_of` includes in its own message.
    """
    execution = query_execution(df)
    if execution is None:
        raise NotPlain("Spark Connect does not provide the plan of a DataFrame")
    if df.isStreaming or is_cached(df):
        raise NotPlain("the DataFrame is streaming" if df.isStreaming else "the DataFrame is cached")
    for setting in _SETTINGS:
        if df.sparkSession.conf.get(setting) != "false":
            raise NotPlain(f"the setting {setting} of the session is not false")
    conditions, relation = _conditions_and_relation(execution.optimizedPlan())
    schema = StructType.fromJson(json.loads(relation.schema().json()))
    for field in schema:
        if any("DEFAULT" in key for key in field.metadata):
            raise NotPlain(
                f"the table has a default value for the column {field.name!r}, which the files do not contain"
            )
    files = df.inputFiles()
    if len(files) != relation.location().allFiles().size():
        raise NotPlain("the DataFrame reads a file more than once")
    if not files or not all(file.startswith("file:") for file in files):
        raise NotPlain("the DataFrame does not read local files")
    try:
        scan = scan_parquet(df.sparkSession, files)
    except ValueError as error:
        raise NotPlain(f"the files of the DataFrame cannot be scanned: {error}") from None
    _check_schema(schema, scan.schema)
    try:
        scan.check_times()
    except ValueError as times_differ:
        raise NotPlain(str(times_differ)) from None
    if not conditions:
        return scan
    for column in (column for condition in conditions for column in _elements(condition.references().toSeq())):
        # Spark ignores the case of names, but Arrow does not. If a name in the condition and the name in the files
        # differ in case, Arrow would not find the column.
        if column.name() not in scan.schema.names:
            raise NotPlain(
                f"a condition uses the column {column.name()!r}, but no column of the files has exactly this name; "
                f"write the name as in the files: {', '.join(scan.schema.names)}"[:300]
            )
    arrow_conditions = [_arrow_condition(condition, scan.schema) for condition in conditions]
    return ParquetScan(scan.spark, scan.dataset, functools.reduce(operator.and_, arrow_conditions), None)


def analyzed_plan(df: DataFrame | ParquetScan) -> Any:
    """Return the analyzed logical plan of a DataFrame, an object of the JVM. Return None if ``df`` is a scan, or if the
    session does not belong to classic Spark.
    """
    if isinstance(df, ParquetScan):
        return None
    execution = query_execution(df)
    return None if execution is None else execution.analyzed()


def scan_or_none(df: DataFrame, scan: Literal["auto"] | None) -> ParquetScan | None:
    """Return a scan of the files of a DataFrame if ``scan`` is "auto" and the plan is supported; otherwise return None.
    The reason why a plan is not supported is logged.

    Raise ``ValueError`` if ``scan`` is neither None nor "auto".
    """
    if scan not in (None, "auto"):
        raise ValueError(f"scan must be 'auto' or None; got {scan!r}")
    if scan is None:
        return None
    log = logging.getLogger("spark_udaf")
    try:
        parquet_scan = _plain_scan(df)
    except NotPlain as reason:
        log.warning("scan='auto': the rows of the DataFrame pass through the JVM: %s", reason)
        return None
    log.info("scan='auto': tasks read %r", parquet_scan)
    return parquet_scan


def _conditions_and_relation(plan: Any) -> tuple[list[Any], Any]:
    """Return the conditions of the filters of a plan, and the relation that the plan reads, as objects of the JVM.
    Raise `NotPlain` if the plan does more than filter rows and select columns of Parquet files.
    """
    conditions = []
    names = set()
    while (kind := _kind(plan)) != "LogicalRelation":
        if kind == "Filter":
            conditions.append(plan.condition())
        elif kind == "Project" and all(_kind(item) == "AttributeReference" for item in _elements(plan.projectList())):
            names |= {item.name() for item in _elements(plan.projectList())}
        else:
            raise NotPlain(
                f"the plan of the DataFrame has a {kind}, and only selections of rows and columns are supported"
            )
        plan = plan.children().apply(0)
    relation = plan.relation()
    if _kind(relation) != "HadoopFsRelation" or relation.fileFormat().getClass().getName() != _PARQUET:
        raise NotPlain("the DataFrame does not read Parquet files")
    if relation.location().getClass().getName() != _FILE_INDEX:
        raise NotPlain(
            f"Spark lists the files of the DataFrame with {_kind(relation.location())}; only paths of "
            "spark.read.parquet are supported"
        )
    options = {pair._1().lower() for pair in _elements(relation.options().toSeq())}
    if options - _OPTIONS:
        raise NotPlain(f"the option {min(options - _OPTIONS)} of the DataFrame is not supported")
    if not names <= set(relation.schema().fieldNames()):
        raise NotPlain("the DataFrame renames columns")
    return conditions, relation


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _elements(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(index) for index in range(sequence.size()))


def _check_schema(spark_columns: StructType, file_schema: pa.Schema) -> None:
    """Raise `NotPlain` unless Spark and the scan read the same columns with the same types."""
    try:
        scanned_types = {
            field.name: field.dataType for field in spark_schema(pa.schema([*map(_in_microseconds, file_schema)]))
        }
    except TypeError as error:
        raise NotPlain(f"the files of the DataFrame cannot be scanned: {error}") from None
    spark_types = {field.name: field.dataType for field in spark_columns}
    differing_names = sorted(
        name for name in scanned_types.keys() | spark_types.keys() if scanned_types.get(name) != spark_types.get(name)
    )
    if differing_names:
        name = differing_names[0]
        spark_type = _type_text(spark_types.get(name))
        file_type = _type_text(scanned_types.get(name))
        raise NotPlain(f"the column {name!r} is {spark_type} in Spark, but {file_type} in the files")


def _type_text(spark_type: Any) -> str:
    return "missing" if spark_type is None else str(spark_type.simpleString())


def _in_microseconds(field: pa.Field) -> pa.Field:
    """Return a field of timestamps in milliseconds as timestamps in microseconds, the unit of Spark. Other fields are
    returned unchanged.
    """
    if pa.types.is_timestamp(field.type) and field.type.unit == "ms":
        return field.with_type(pa.timestamp("us", field.type.tz))
    return field


def _arrow_condition(node: Any, schema: pa.Schema) -> pc.Expression:
    """Return a condition of Spark as an Arrow expression with the same result (true, false or null) for every row.
    Raise `NotPlain` for a condition that is not supported.
    """
    kind = _kind(node)
    parts = list(_elements(node.children()))
    if kind in ("And", "Or"):
        combine: Callable[[Any, Any], Any] = operator.and_ if kind == "And" else operator.or_
        return combine(*(_arrow_condition(part, schema) for part in parts))
    if kind == "Not":
        return ~_arrow_condition(parts[0], schema)
    if kind == "AttributeReference" and pa.types.is_boolean(schema.field(node.name()).type):
        return pc.field(node.name())
    if kind in ("IsNull", "IsNotNull") and _kind(parts[0]) == "AttributeReference":
        column = pc.field(parts[0].name())
        return column.is_null() if kind == "IsNull" else column.is_valid()
    if kind in _COMPARISONS:
        compare = _COMPARISONS[kind]
        left, right = parts
        if _kind(left) == "Literal":
            left, right = right, left
            compare = _MIRRORED.get(compare, compare)
        if _kind(left) == "AttributeReference" and _kind(right) == "Literal":
            return _comparison(compare, left.name(), right.value(), schema)
    if kind in ("In", "InSet") and _kind(parts[0]) == "AttributeReference":
        values = _values_of(node, parts)
        if values is not None and 0 < len(values) <= _MAX_VALUES:
            comparisons = [_comparison(operator.eq, parts[0].name(), value, schema) for value in values]
            return functools.reduce(operator.or_, comparisons)
    raise NotPlain(f"the condition {str(node.toString())[:80]} is not supported")


def _values_of(node: Any, parts: list[Any]) -> list[Any] | None:
    """Return the list of values of an IN condition, as objects of the JVM, or None if one of them is not a literal."""
    if _kind(node) == "In":
        return [part.value() for part in parts[1:]] if all(_kind(part) == "Literal" for part in parts[1:]) else None
    return list(_elements(node.hset().toSeq()))


def _comparison(compare: Any, name: str, value: Any, schema: pa.Schema) -> pc.Expression:
    """Return the Arrow expression that compares a column with a value. As in Spark, NaN is greater than all numbers."""
    arrow_type = schema.field(name).type
    column = pc.field(name)
    result = compare(column, _scalar(value, arrow_type, name))
    is_greater = compare in (operator.gt, operator.ge)
    return result | pc.is_nan(column) if is_greater and pa.types.is_floating(arrow_type) else result


def _scalar(value: Any, arrow_type: pa.DataType, name: str) -> pa.Scalar:
    """Return a value of the JVM as an Arrow scalar of the type ``arrow_type``, the type of the column ``name``.
    Raise `NotPlain` if the value is null or NaN, or if the type is not supported.
    """
    if value is None:
        raise NotPlain(f"a condition compares the column {name!r} with null")
    if isinstance(value, float) and math.isnan(value):
        raise NotPlain(f"a condition compares the column {name!r} with NaN")
    if pa.types.is_timestamp(arrow_type):
        return pa.scalar(value, pa.timestamp("us", arrow_type.tz))
    if pa.types.is_decimal(arrow_type):
        return pa.scalar(Decimal(str(value.toString())), arrow_type)
    if pa.types.is_string(arrow_type):
        return pa.scalar(str(value.toString()), arrow_type)
    plain_types = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_date32)
    if any(is_type(arrow_type) for is_type in plain_types):
        return pa.scalar(value, arrow_type)
    raise NotPlain(f"a condition compares the column {name!r}, whose type {arrow_type} is not supported")
