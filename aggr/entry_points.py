"""What other distributions bring: the objects of a group of entry points."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any


def load_group(group: str, what: str, register: Callable[[Any], Any]) -> None:
    """Register the objects of a group of entry points; a warning names ``what`` and the entry point that failed."""
    from importlib.metadata import entry_points  # with all of email and zipfile, which few imports need

    for point in entry_points(group=group):
        try:
            register(point.load())
        except Exception as error:  # another's code: whatever it raises must not take ours along
            whose = point.dist.name if point.dist else "an unknown distribution"
            warnings.warn(f"the {what} {point.name!r} of {whose} is left out: {error}", RuntimeWarning, stacklevel=4)
