"""Registration of many SQL functions: by one call to the JVM on classic Spark, and one by one elsewhere.

PySpark registers a function with twenty calls to the JVM, which takes seconds for a thousand functions. In this module,
PySpark registers only the first function. A method in Java, compiled by Spark's own compiler, copies this
function once for each other function, and replaces the name, the pickled function, the result type and the kind of
call in the copy.
"""

from __future__ import annotations

import logging
import pickle
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType

from spark_udaf.versions.arrow_types import from_arrow_type
from spark_udaf.versions.features import has_arrow_udf
from spark_udaf.versions.sql_function import SqlFunction
from spark_udaf.versions.sql_udfs import ArrowFunction, sql_udf

# The source code of a Java class with a method that registers functions. The method calls the constructors of Spark's
# classes by reflection, because they have different parameters in different versions of Spark.
_JAVA = """
import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.execution.python.UserDefinedPythonFunction;
import org.apache.spark.sql.types.DataType;

public class Registration {
    private static byte[] bytes(DataInputStream in) throws IOException {
        byte[] read = new byte[in.readInt()];
        in.readFully(read);
        return read;
    }

    private static String text(DataInputStream in) throws IOException {
        return new String(bytes(in), StandardCharsets.UTF_8);
    }

    private static Object copy(scala.Product original, Object[] firstFields) throws Exception {
        Object[] fields = new Object[original.productArity()];
        for (int i = 0; i < fields.length; i++)
            fields[i] = i < firstFields.length ? firstFields[i] : original.productElement(i);
        Constructor[] constructors = original.getClass().getConstructors();
        for (int i = 0; i < constructors.length; i++) {
            Class[] types = constructors[i].getParameterTypes();
            if (types.length == fields.length && types[0].isInstance(fields[0]))
                return constructors[i].newInstance(fields);
        }
        throw new NoSuchMethodException(original.getClass().getName());
    }

    public static void register(Object registration, UserDefinedPythonFunction first, byte[] message) throws Exception {
        Method method = registration.getClass().getMethod(
            "registerPython", new Class[] {String.class, UserDefinedPythonFunction.class});
        scala.Product firstCommand = (scala.Product) first.func();
        DataInputStream in = new DataInputStream(new ByteArrayInputStream(message));
        DataType[] types = new DataType[in.readInt()];
        for (int i = 0; i < types.length; i++)
            types[i] = DataType.fromJson(text(in));
        int functions = in.readInt();
        for (int i = 0; i < functions; i++) {
            String name = text(in);
            Object command = copy(firstCommand, new Object[] {bytes(in)});
            DataType type = types[in.readInt()];
            Integer evalType = Integer.valueOf(in.readInt());
            Object function = copy((scala.Product) first, new Object[] {name, command, type, evalType});
            method.invoke(registration, new Object[] {name, function});
        }
    }
}
"""


# A dict from a Spark context to a future of its compiled Java method.
_compiled_methods: WeakKeyDictionary[Any, Future[Any]] = WeakKeyDictionary()


def compile_ahead(spark: SparkSession) -> None:
    """Start to compile the Java method that registers functions. Another thread compiles it, so that the caller can
    prepare functions in the meantime.

    The first compilation in a JVM takes tenths of a second. Further calls have no effect. On Spark Connect, do nothing.
    """
    if hasattr(spark, "_jsparkSession"):
        _method_future(spark)


def register_functions(spark: SparkSession, functions: Sequence[SqlFunction]) -> None:
    """Register functions for SQL in a session, by one call to the JVM if possible, and otherwise one by one."""
    first_function, *remaining = functions
    registered_function = spark.udf.register(first_function.name, sql_udf(first_function))
    if not remaining:
        return
    if hasattr(spark, "_jsparkSession"):
        try:
            _register_at_once(spark, registered_function, remaining)
            return
        except Exception as error:
            # `_register_at_once` uses internal parts of Spark, which a release or a cluster may lack. The registration
            # below uses only public parts of PySpark.
            log = logging.getLogger("spark_udaf")
            log.info("su.register registers %d functions one by one: %s", len(remaining), str(error).partition("\n")[0])
    for function in remaining:
        spark.udf.register(function.name, sql_udf(function))


def _register_at_once(spark: Any, registered_function: Any, functions: Sequence[SqlFunction]) -> None:
    """Register functions by one call to the JVM, as copies of a function that PySpark has registered."""
    first_function = registered_function._judf
    message = _message(functions)
    register_method = _method_future(spark).result()
    arguments = spark.sparkContext._gateway.new_array(spark.sparkContext._jvm.java.lang.Object, 3)
    arguments[0] = spark._jsparkSession.udf()
    arguments[1] = first_function
    arguments[2] = message
    register_method.invoke(None, arguments)


def _method_future(spark: Any) -> Future[Any]:
    """Return a future of the compiled Java method that registers functions. Another thread compiles the method, once
    for each Spark context.
    """
    future = _compiled_methods.get(spark.sparkContext)
    if future is None or (future.done() and future.exception() is not None):
        thread = ThreadPoolExecutor(1, "tiltframe-registration")
        future = _compiled_methods[spark.sparkContext] = thread.submit(_compile_method, spark)
        thread.shutdown(wait=False)
    return future


def _compile_method(spark: Any) -> Any:
    compiler = getattr(spark.sparkContext._jvm, "org.codehaus.janino.SimpleCompiler")()
    compiler.setParentClassLoader(spark._jsparkSession.getClass().getClassLoader())
    compiler.cook(_JAVA)
    java_class = compiler.getClassLoader().loadClass("Registration")
    (register_method,) = [method for method in java_class.getMethods() if method.getName() == "register"]
    return register_method


def _message(functions: Sequence[SqlFunction]) -> bytes:
    """Return one binary message for the Java method. The message contains a list of the result types, each of them
    once. For each function, it contains the name, the pickled command, the index of the result type in this list, and
    PySpark's evaluation type.
    """
    type_indices: dict[str, int] = {}
    parts: list[bytes] = [_number(len(functions))]
    commands = _arrow_commands(functions) if has_arrow_udf() else _pandas_commands(functions)
    for name, command, dtype, eval_type in commands:
        type_index = type_indices.setdefault(dtype, len(type_indices))
        parts += [_text(name.encode()), _text(command), _number(type_index), _number(eval_type)]
    types = [_number(len(type_indices)), *(_text(dtype.encode()) for dtype in type_indices)]
    return b"".join([*types, *parts])


def _pandas_commands(functions: Sequence[SqlFunction]) -> Iterator[tuple[str, bytes, str, int]]:
    """Yield four values for each function: its name, its command (the pickled function and result type), its result
    type as JSON, and PySpark's evaluation type.
    """
    pickler: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
    for function in functions:
        udf = sql_udf(function)
        yield function.name, pickler.dumps((udf.func, udf.returnType)), udf.returnType.json(), udf.evalType


def _arrow_commands(functions: Sequence[SqlFunction]) -> Iterator[tuple[str, bytes, str, int]]:
    """Yield the same four values for each function as `_pandas_commands`.

    Here, a command contains a function of Arrow arrays (`ArrowFunction`). The standard library can pickle such a
    function, and is much faster than PySpark's pickler.
    """
    types: dict[pa.DataType, str] = {}
    eval_types: dict[bool, int] = {}
    for function in functions:
        if function.is_aggregate not in eval_types:
            eval_types[function.is_aggregate] = sql_udf(function).evalType
        if function.dtype not in types:
            types[function.dtype] = from_arrow_type(function.dtype).json()
        command = pickle.dumps((ArrowFunction(function), _ResultType(function)))
        yield function.name, command, types[function.dtype], eval_types[function.is_aggregate]


@dataclass(frozen=True)
class _ResultType:
    """A placeholder for the result type in a pickled command. The pickle of the placeholder contains only the function.
    Unpickling computes the result type from the function, and returns this type. The command is therefore short, which
    matters because Spark logs every command.
    """

    function: SqlFunction

    def __reduce__(self) -> tuple[Any, ...]:
        return _result_type, (self.function,)


def _result_type(function: SqlFunction) -> DataType:
    return from_arrow_type(function.dtype)


def _number(value: int) -> bytes:
    return struct.pack(">i", value)


def _text(value: bytes) -> bytes:
    return _number(len(value)) + value
