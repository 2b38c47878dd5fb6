"""Derived keys: keys of query results that the store does not contain. A derived key is computed from a key of the
frame when a query runs.

Distributions add kinds of derived keys by entry points of the group ``tiltframe.keys``. The name of the entry point is
the name of the kind::

    [project.entry-points."tiltframe.keys"]
    lookup = "tiltframe.lookups:Lookup"
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, ClassVar

import pyarrow as pa

from aggr.arguments import is_name, shown
from aggr.entry_points import load_group

GROUP = "tiltframe.keys"
_KINDS: dict[str, type[DerivedKey]] = {}


class Unmapped(UserWarning):
    """A warning: a derived key, such as a lookup, is null in some results, because it is not defined for some values of
    the frame's key.
    """


class DerivedKey(ABC):
    """The base class of derived keys: keys of results, each computed from a key of the frame.

    If several values of the frame's key have the same derived key, their states are merged. The results therefore equal
    those of rows that had the derived key from the start. Derived keys are immutable. Two derived keys are equal if
    they give the same results.

    Attributes that a subclass sets
    -------------------------------
    kind : str
        The name of the kind, such as ``lookup``. It is the name of the function in calls that are written as text,
        and one of the keys of the dict that `describe` returns.
    call : str
        The call that creates the key in Python, such as ``lookup(KEY, table)``, for messages.
    text : str
        An example of the call as text on the command line, such as ``lookup(device, sites.csv)``.
    form : str
        The form of the dict that `describe` returns, as JSON with placeholders, for messages. An example is
        ``{"lookup": KEY, "table": {KEY: [...], NAME: [...]}}``.
    make : function
        A function that returns the derived key. If the call is written as text, the function receives the arguments
        in the text.
    key : str
        The name of the frame's key from which the derived key is computed.
    """

    kind: ClassVar[str]
    call: ClassVar[str]
    text: ClassVar[str]
    form: ClassVar[str]
    make: ClassVar[Callable[..., DerivedKey]]
    key: str

    @abstractmethod
    def check(self, name: str) -> None:
        """Raise ``ValueError`` if this derived key cannot have the name ``name`` in results, for example because the
        table of a lookup has no column of this name.

        Parameters
        ----------
        name : str
            The name of the key in the results.
        """

    @abstractmethod
    def keys_of(self, rows: pa.Table, name: str, now: int) -> pa.Array:
        """Return the derived key of each row of states.

        Parameters
        ----------
        rows : table
            States with window_start, window_end and the keys of the frame.
        name : str
            The name of the key in the results.
        now : int
            The time of the query, in microseconds UTC.

        Returns
        -------
        array, shape (rows,)
            The derived keys; null for a row without a derived key.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return a description of the derived key as a dict that JSON can represent. One of the dict's keys is the name
        of the kind, such as ``lookup``. Raise ``ValueError`` if JSON cannot represent the description.
        """

    @classmethod
    @abstractmethod
    def from_description(cls, described: Mapping[str, Any]) -> DerivedKey:
        """Return the derived key that a description defines. Raise ``KeyError``, ``TypeError`` or ``ValueError`` if
        ``described`` is not a description of this kind.

        Parameters
        ----------
        described : mapping
            The result of `describe`.

        Returns
        -------
        DerivedKey
        """

    @abstractmethod
    def reason(self, name: str) -> str:
        """Return the reason why the key is null in some results. The reason is a clause of a message, such as the
        clause after the colon in ``site is null in 2 of 9 results: the table of the lookup has no site for their values
        of device``.

        Parameters
        ----------
        name : str
            The name of the key in the results.

        Returns
        -------
        str
        """


def register_kind(kind: type[DerivedKey]) -> None:
    """Register a kind of derived keys under its name. Kinds of entry points are registered automatically.

    Parameters
    ----------
    kind : subclass of DerivedKey
    """
    _KINDS[kind.kind] = kind


def key_kinds() -> Mapping[str, type[DerivedKey]]:
    """Return all registered kinds of derived keys, including the kinds of entry points, as name → class."""
    _load_entry_points()
    return _KINDS


@cache
def _load_entry_points() -> None:
    load_group(GROUP, "kind of derived keys", register_kind)


def key_from_description(described: Any) -> Any:
    """Return the derived key that a result of `DerivedKey.describe` defines. Other values, such as the name of a key,
    are returned unchanged. Raise ``ValueError`` if a mapping is not such a description.
    """
    if not isinstance(described, Mapping):
        return described
    kind = next((kind for name, kind in key_kinds().items() if name in described), None)
    try:
        if kind is not None:
            return kind.from_description(described)
    except (KeyError, TypeError, pa.ArrowException):
        pass
    forms = " or ".join(kind.form for kind in key_kinds().values()) or "the name of a key"
    raise ValueError(f"cannot read {shown(described)} as a key; write {forms}")


def checked_keys(keys: Mapping[Any, Any]) -> dict[str, str | DerivedKey]:
    """Check the keys of a query, and return them as a dict. ``keys`` maps names in the results to keys of the frame or
    to derived keys. Raise ``ValueError`` if a key of the frame is listed under another name, or if `DerivedKey.check`
    rejects the name of a derived key.
    """
    for name, key in keys.items():
        if not is_name(name):
            raise ValueError(f"the name of a key must be text that is not blank; got {shown(name)}: {shown(key)}")
        if not isinstance(key, DerivedKey) and key != name:
            calls = "".join(f", or NAME: {kind.call}" for kind in key_kinds().values())
            raise ValueError(
                f"cannot use {shown(name)}: {shown(key)} as a key of a query; list a key of the frame under its own "
                f"name{calls}"
            )
        if isinstance(key, DerivedKey):
            key.check(name)
    return dict(keys)


def count_unmapped(
    slices: Iterator[pa.Table], derived: Mapping[str, DerivedKey], report: Callable[[str], None]
) -> Iterator[pa.Table]:
    """Yield the tables of results in ``slices``. After the last table, call ``report`` with a message for each key in
    ``derived`` that is null in some results.
    """
    missing = dict.fromkeys(derived, 0)
    rows = 0
    for results in slices:
        rows += results.num_rows
        missing = {name: count + results.column(name).null_count for name, count in missing.items()}
        yield results
    for name, count in missing.items():
        if count:
            report(
                f"{name} is null in {count:,} of {rows:,} results: {derived[name].reason(name)}; add the frame's key "
                f"to the keys of the query to see for which of its values {name} is null"
            )
