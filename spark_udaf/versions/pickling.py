"""Pickle the functions that Spark's tasks run, by the pickler that PySpark contains."""

from __future__ import annotations

from typing import Any

from pyspark import cloudpickle


def pickle_for_tasks(value: Any) -> bytes:
    """Return the pickle of a value. Functions and classes that workers cannot import are pickled by value."""
    pickled: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return pickled
