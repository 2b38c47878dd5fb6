"""Attachments of PySpark's instances: the plan of a DataFrame; the call, ``over`` and ``alias`` of a Column.

Values are attached as attributes of the instance. If a release of PySpark copied its instances or used slots, the
attributes would be lost: results would stay correct, and plans would be slower. ``tests/spark/test_attachments.py``
detects this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_PREFIX = "_tiltframe_"


def attach(instance: Any, name: str, value: object, /, **methods: Callable[..., Any]) -> None:
    """Set a value on an instance of PySpark, and replace methods of its class."""
    vars(instance).update({_PREFIX + name: value, **methods})


def attached(instance: Any, name: str) -> Any:
    """Return the attached value of this name, or None."""
    return getattr(instance, "__dict__", {}).get(_PREFIX + name)
