"""Conversion between Arrow types and Spark types, using only the public classes of ``pyspark.sql.types``.

PySpark's own conversion is internal, and its parameters differ from version to version. In this conversion, instants
always have the time zone UTC.
"""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as T

_SIMPLE_TYPES: list[tuple[type[T.DataType], pa.DataType]] = [
    (T.BooleanType, pa.bool_()),
    (T.ByteType, pa.int8()),
    (T.ShortType, pa.int16()),
    (T.IntegerType, pa.int32()),
    (T.LongType, pa.int64()),
    (T.FloatType, pa.float32()),
    (T.DoubleType, pa.float64()),
    (T.StringType, pa.string()),
    (T.BinaryType, pa.binary()),
    (T.DateType, pa.date32()),
    (T.TimestampType, pa.timestamp("us", "UTC")),
    (T.TimestampNTZType, pa.timestamp("us")),
    (T.DayTimeIntervalType, pa.duration("us")),
    (T.NullType, pa.null()),
]
if hasattr(T, "TimeType"):  # This type exists since PySpark 4.1.
    _SIMPLE_TYPES.append((T.TimeType, pa.time64("ns")))

_BY_ARROW_ID = {
    dtype.id: spark_type for spark_type, dtype in reversed(_SIMPLE_TYPES) if not pa.types.is_timestamp(dtype)
} | {
    pa.large_string().id: T.StringType,
    pa.large_binary().id: T.BinaryType,
    pa.binary(1).id: T.BinaryType,
}
# Types that are found by name in this dict, because the start of Spark's parser takes long.
_PLAIN_NAMES: dict[str, type[T.DataType]] = {
    "bigint": T.LongType,
    "string": T.StringType,
}
_TIMESTAMP_TYPE = "spark.sql.timestampType"
_INSTANTS = "TIMESTAMP_LTZ"
_VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)


class UnsupportedType(TypeError):
    """A type of Spark that Arrow lacks, or a type of Arrow that Spark lacks."""


def to_arrow_type(spark_type: T.DataType) -> pa.DataType:
    """Return the Arrow type in which Spark sends values of a Spark type to Python. Raise `UnsupportedType` if Arrow
    does not have such a type.
    """
    if isinstance(spark_type, T.DecimalType):
        return pa.decimal128(spark_type.precision, spark_type.scale)
    if isinstance(spark_type, T.ArrayType):
        return pa.list_(pa.field("element", to_arrow_type(spark_type.elementType), spark_type.containsNull))
    if isinstance(spark_type, T.MapType):
        key = pa.field("key", to_arrow_type(spark_type.keyType), nullable=False)
        value = pa.field("value", to_arrow_type(spark_type.valueType), spark_type.valueContainsNull)
        return pa.map_(key, value)
    if isinstance(spark_type, T.StructType):
        return pa.struct([pa.field(f.name, to_arrow_type(f.dataType), f.nullable) for f in spark_type])
    if isinstance(spark_type, T.UserDefinedType):
        return to_arrow_type(spark_type.sqlType())
    if hasattr(T, "VariantType") and isinstance(spark_type, T.VariantType):  # This type exists since PySpark 4.0.
        return _VARIANT
    for spark_class, dtype in _SIMPLE_TYPES:
        if isinstance(spark_type, spark_class):
            return dtype
    raise UnsupportedType(
        f"Spark cannot send the type {spark_type.simpleString()} to Python; cast it to another type, such as string"
    )


def to_arrow_schema(schema: T.StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark sends columns to Python."""
    return pa.schema([pa.field(f.name, to_arrow_type(f.dataType), f.nullable) for f in schema])


def from_arrow_type(dtype: pa.DataType) -> T.DataType:
    """Return the Spark type of an Arrow type. Raise `UnsupportedType` if Spark does not have such a type."""
    if pa.types.is_timestamp(dtype):
        return T.TimestampNTZType() if dtype.tz is None else T.TimestampType()
    if pa.types.is_decimal(dtype):
        return T.DecimalType(dtype.precision, dtype.scale)
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_fixed_size_list(dtype):
        return T.ArrayType(from_arrow_type(dtype.value_type), dtype.value_field.nullable)
    if pa.types.is_map(dtype):
        value = from_arrow_type(dtype.item_type)
        return T.MapType(from_arrow_type(dtype.key_type), value, dtype.item_field.nullable)
    if dtype.equals(_VARIANT, check_metadata=True):
        return T.VariantType()
    if pa.types.is_struct(dtype):
        return T.StructType([T.StructField(f.name, from_arrow_type(f.type), f.nullable) for f in dtype])
    if pa.types.is_dictionary(dtype):
        return from_arrow_type(dtype.value_type)
    spark_type = _BY_ARROW_ID.get(dtype.id)
    if spark_type is None:
        raise UnsupportedType(f"Spark has no type for {dtype}; cast it to another type")
    return cast(T.DataType, spark_type())


def _has_times_without_zone() -> bool:
    """Return whether the type name ``timestamp`` may mean times without a zone. It means instants if the setting
    ``spark.sql.timestampType`` of the active session is TIMESTAMP_LTZ. If there is no active session, the setting is
    unknown, and the result is true.
    """
    session: Any = SparkSession.getActiveSession()
    return session is None or session.conf.get(_TIMESTAMP_TYPE, _INSTANTS) != _INSTANTS


def parse_type(text: str) -> T.DataType:
    """Return the Spark type with a name in SQL, such as ``"decimal(20,2)"``. Spark parses the name, and raises its own
    error if the name is invalid.
    """
    if text in _PLAIN_NAMES:
        return _PLAIN_NAMES[text]()
    if text == "timestamp" and not _has_times_without_zone():
        return T.TimestampType()
    schema: Any
    if hasattr(T.StructType, "fromDDL"):  # This method exists since PySpark 4.0.
        schema = T.StructType.fromDDL(f"x {text}")
    else:
        session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
        schema = session.createDataFrame([], f"x {text}").schema
    # If the text describes two columns, such as "int, y int", this assignment to one variable raises an error.
    (field,) = schema.fields
    return cast(T.DataType, field.dataType)
