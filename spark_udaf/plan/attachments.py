"""What PySpark's instances carry of ours: a DataFrame its plan, a Column its call and its own ``over`` and ``alias``.

Spark has no place for such things, so they are set on the instance. If a release of PySpark copied or slotted its
instances they would be lost: results stay right, plans become slower. ``tests/spark/test_attachments.py`` notices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_PREFIX = "_tiltframe_"


def attach(instance: Any, name: str, value: object, /, **methods: Callable[..., Any]) -> None:
    """Set a value on an instance of PySpark's, and methods in place of its class's."""
    vars(instance).update({_PREFIX + name: value, **methods})


def attached(instance: Any, name: str) -> Any:
    """Return the value that was set on an instance by this name; None if there is none."""
    return getattr(instance, "__dict__", {}).get(_PREFIX + name)
