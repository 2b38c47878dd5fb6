"""Attachments: attributes that this library sets on instances of PySpark's classes. A DataFrame gets the plan that
computes it. A Column gets the call that created it, and replacements of its methods ``over`` and ``alias``.

If a release of PySpark copied its instances or used slots, the attributes would be lost: results would stay correct,
and plans would be slower. ``tests/spark/test_attachments.py`` detects this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_PREFIX = "_tiltframe_"


def attach(instance: Any, name: str, value: object, /, **methods: Callable[..., Any]) -> None:
    """Set a value on an instance of a PySpark class under a name, and replace methods of this instance. ``methods``
    maps names of methods to functions without the parameter ``self``.
    """
    vars(instance).update({_PREFIX + name: value, **methods})


def attached_value(instance: Any, name: str) -> Any:
    """Return the value that `attach` has set on the instance under this name, or None."""
    return getattr(instance, "__dict__", {}).get(_PREFIX + name)
