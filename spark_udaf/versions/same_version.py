"""Check that tasks run the same version of tiltframe as the driver. Functions and objects are sent together
with the number of the driver's version.

A task compares the versions before it loads a function or an object. Another version may lack code, or may compute a
different result that no later check would detect.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import cache
from importlib import metadata
from typing import Any

from spark_udaf.versions.pickling import pickle_for_tasks


@cache
def installed_version() -> str | None:
    """Return the version of the installed tiltframe, or None for a folder of sources, which has no metadata."""
    try:
        return metadata.version("tiltframe")
    except metadata.PackageNotFoundError:
        return None


def check_version(driver_version: str | None) -> None:
    """Raise ``ValueError`` if the installed tiltframe has another version than ``driver_version``, the version of the
    driver. If a version is unknown, no error is raised.

    >>> check_version(installed_version())
    """
    own_version = installed_version()
    if None not in (own_version, driver_version) and own_version != driver_version:
        raise ValueError(
            f"the driver has tiltframe {driver_version}, and this worker has {own_version}; "
            "install the same version on driver and workers"
        )


class TaskFunction:
    """A function that tasks call. Its pickle contains the version of tiltframe in this process. Only a process with the
    same version can load the pickle.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        """Store the function, and its name, which Spark uses for stages and columns."""
        self._function = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __call__(self, *positional: Any, **named: Any) -> Any:
        """Call the function with the same arguments, and return its result."""
        return self._function(*positional, **named)

    def __reduce__(self) -> tuple[Any, ...]:
        return _load, (installed_version(), pickle_for_tasks(self._function))


class SentWithVersion:
    """A base class of objects that are sent to tasks and must be instances of a class of Spark, such as readers of a
    data source.

    The pickle of such an object contains the version of tiltframe in this process. Only a process with the same version
    can load the pickle.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_object, (installed_version(), pickle_for_tasks((type(self), self.__dict__)))


# The name of this function must not change. Pickles contain the name, and workers with another version of tiltframe
# must find the function, so that it can raise its error.
def _load(driver_version: str | None, pickle_bytes: bytes) -> Any:
    check_version(driver_version)
    return pickle.loads(pickle_bytes)


def _load_object(driver_version: str | None, pickle_bytes: bytes) -> Any:
    loaded_class, attributes = _load(driver_version, pickle_bytes)
    instance = loaded_class.__new__(loaded_class)
    instance.__dict__.update(attributes)
    return instance
