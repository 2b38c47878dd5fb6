"""Names of the columns that tiltframe adds. Keys and measures cannot have these names."""

from __future__ import annotations

from collections.abc import Iterable

from aggr.arguments import is_name, shown

LEVEL = "level"
START = "window_start"
END = "window_end"
PARTIAL = "partial"
# columns of a store's table
BUCKET = "bucket"
RECORD = "_record"
RECORDED = "_recorded"
# columns that a stream adds to the windows that it emits
REASON = "reason"
REVISION = "revision"
# the column of results that says whether a window was added by ``fill``
FILLED = "filled"
# a column in tables of partial states on Spark: each state lies in one window of the coarsest level, and the column
# contains the start of this window
COARSE = "__coarse"
RESERVED = (LEVEL, START, END, PARTIAL, BUCKET, RECORD, RECORDED, REASON, REVISION, COARSE)


def check_names(keys: Iterable[str], measures: Iterable[str]) -> None:
    """Raise ``ValueError`` if the name of a key or a measure occurs twice, is blank, or is one of `RESERVED`.

    Names that differ only by case are rejected too, because SQL does not distinguish them.

    >>> check_names(["host", "n"], ["n"])
    Traceback (most recent call last):
    ValueError: the name 'n' is used twice among keys and measures; rename one
    """
    names = [*keys, *measures]
    names_by_folded: dict[str, str] = {}
    for name in names:
        if not is_name(name):
            raise ValueError(f"names of keys and measures must be text that is not blank; got {shown(name)}")
        if name.lower() in RESERVED:
            raise ValueError(
                f"the name {shown(name)} is reserved, as are {', '.join(RESERVED)}; "
                f"choose another name for the key or measure"
            )
        other = names_by_folded.setdefault(name.lower(), name)
        if names.count(name) > 1:
            raise ValueError(f"the name {shown(name)} is used twice among keys and measures; rename one")
        if other != name:
            raise ValueError(
                f"the names {shown(other)} and {shown(name)} of keys and measures differ only by case, which SQL does "
                "not distinguish; rename one"
            )
