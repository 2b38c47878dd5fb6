"""Names of columns: the column that a name with dots refers to. This module does not load the parser."""

from __future__ import annotations

from collections.abc import Collection


def column_in(name: str, names: Collection[str]) -> str | None:
    """Return the column that a name refers to. The name may be that of the column itself, or of a field of the column.

    Parameters
    ----------
    name : str
        A name such as ``http.status``.
    names : collection of str
        The names of the existing columns.

    Returns
    -------
    str or None
        None if the name does not refer to any of the columns.

    Examples
    --------
    >>> column_in("http.status", ["http", "ms"]), column_in("ms", ["ms"]), column_in("http.status", ["ms"])
    ('http', 'ms', None)
    """
    while name not in names:
        name, dot, _ = name.rpartition(".")
        if not dot:
            return None
    return name
