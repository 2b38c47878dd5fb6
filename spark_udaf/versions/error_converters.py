"""The functions with which PySpark converts errors of the JVM and of Spark Connect. A release may lack them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

Converter: TypeAlias = Callable[..., Any]

_MODULES = ("pyspark.errors.exceptions.captured", "pyspark.sql.connect.client.core")
_NAME = "convert_exception"


def replace_converters(wrap: Callable[[Converter], Converter]) -> None:
    """Replace each of PySpark's functions ``convert_exception`` by the function that ``wrap`` returns for it. ``wrap``
    may return the function unchanged. Modules that have not been imported are skipped.
    """
    for name in _MODULES:
        # The modules are not imported here, because importing Spark Connect is slow, and the user may not need it.
        module = sys.modules.get(name)
        convert = getattr(module, _NAME, None)
        if module is not None and convert is not None:
            setattr(module, _NAME, wrap(convert))
