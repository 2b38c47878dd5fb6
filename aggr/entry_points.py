"""Plug-ins: objects that distributions declare in a group of entry points."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from aggr.extras import MissingExtra
from aggr.skipped_pandas import allow_pandas

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

DISTRIBUTION = "tiltframe"
NO_OBJECT = object()


def load_group(
    group: str,
    what: str,
    register: Callable[[Any], Any],
    *,
    register_tested: Callable[[Any], Any] | None = None,
) -> None:
    """Load the objects of a group of entry points, and call ``register`` with each object.

    If an object cannot be loaded or registered, a warning names its entry point, and describes the object by the text
    ``what``, such as "function".

    ``register_tested``, if it is passed, is called instead of ``register`` for objects that this distribution itself
    declares. This function may omit checks that the distribution's own tests make.
    """
    # imported here because ``importlib.metadata`` imports email and zipfile, which takes time
    from importlib.metadata import entry_points

    distribution_name = cache(attrgetter("name"))  # cached, because each access parses the metadata of the distribution
    for point in entry_points(group=group):
        is_own = False
        try:
            is_own = point.dist is not None and distribution_name(point.dist) == DISTRIBUTION
            register_object = register_tested if register_tested is not None and is_own else register
            if not is_own:
                allow_pandas()
            register_object(point.load())
        # An error in the code of another package must not stop this package.
        except Exception as error:
            # An optional part of this distribution is left out without a warning if its dependencies are not installed.
            if is_own and isinstance(error, MissingExtra):
                continue
            distribution = point.dist.name if point.dist else "an unknown distribution"
            message = (
                f"the {what} {point.name!r} of {distribution} cannot be loaded, and is not available: {error}; install "
                "another version of this distribution, or uninstall it"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=4)


def load(point: EntryPoint) -> Any:
    """Return the object of an entry point. If another distribution declares it, `allow_pandas` is called first, because
    the code of that distribution may pass objects of pandas to pyarrow.
    """
    if point.dist is None or point.dist.name != DISTRIBUTION:
        allow_pandas()
    return point.load()


def load_name(group: str, name: str) -> Any:
    """Return the object of the entry point ``name`` in a group, or `NO_OBJECT` if no distribution declares this entry
    point. Errors that the import of the object raises are not caught.
    """
    # imported here because ``importlib.metadata`` imports email and zipfile, which takes time
    from importlib.metadata import entry_points

    for point in entry_points(group=group, name=name):
        return load(point)
    return NO_OBJECT
