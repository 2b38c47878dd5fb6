"""Extras: optional dependencies, and the message that names the extra to install."""

from __future__ import annotations


class MissingExtra(ImportError):
    """Raised if an optional dependency is not installed. The message names the extra that installs it.

    >>> print(MissingExtra("a store in a folder", "delta", ImportError("No module named 'deltalake'")))
    a store in a folder needs the extra delta: pip install 'tiltframe[delta]' (No module named 'deltalake')
    """

    def __init__(self, what: str, extra: str, error: ImportError) -> None:
        """Create the error for the feature ``what``, which needs a dependency that is not installed. ``extra`` is the
        name of the extra that installs the dependency, and ``error`` the error of its import.
        """
        super().__init__(f"{what} needs the extra {extra}: pip install 'tiltframe[{extra}]' ({error})", name=error.name)
