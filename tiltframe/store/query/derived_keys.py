"""Derived keys: keys of results that are computed from a key of the frame when a query runs. States have only the key
of the frame.

Distributions add kinds of derived keys by entry points of the group ``tiltframe.keys``, whose name is the kind::

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
    """A warning: keys of results are null, because a derived key, such as a lookup, lacks a value for some keys of the
    frame.
    """


class DerivedKey(ABC):
    """A key of results that is computed from a key of the frame: a frozen value, equal to another with equal results.

    If several keys of the frame get the same value, their states are merged, so that results equal those of rows that
    had the new key from the start.

    What a kind of derived keys sets
    --------------------------------
    kind : the word by which its description and calls as text name it
    call : an example of the call that creates it, such as ``lookup(KEY, table)``, for messages
    text : an example of the call as text, such as ``lookup(device, sites.csv)``
    form : the form of its description as JSON, for messages
    make : the function that creates it from the arguments of a call as text
    key : the key of the frame
    """

    kind: ClassVar[str]
    call: ClassVar[str]
    text: ClassVar[str]
    form: ClassVar[str]
    make: ClassVar[Callable[..., DerivedKey]]
    key: str

    @abstractmethod
    def check(self, name: str) -> None:
        """Raise ``ValueError`` if the derived key cannot compute a key with this name.

        Parameters
        ----------
        name : str
            The name of the key in the results.
        """

    @abstractmethod
    def keys_of(self, rows: pa.Table, name: str, now: int) -> pa.Array:
        """Compute the key for each row of states.

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
            Null if the key has no value.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the derived key as plain data with a member named like the kind; raise ``ValueError`` if JSON cannot
        represent it.
        """

    @classmethod
    @abstractmethod
    def from_description(cls, described: Mapping[str, Any]) -> DerivedKey:
        """Restore a derived key; raise ``KeyError``, ``TypeError`` or ``ValueError`` for other data.

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
        """Return why the key may be null, as the end of a sentence: ``its table has no site for their host``.

        Parameters
        ----------
        name : str
            The name of the key in the results.

        Returns
        -------
        str
        """


def register_kind(kind: type[DerivedKey]) -> None:
    """Register a kind of derived keys under its word.

    Parameters
    ----------
    kind : subclass of DerivedKey
        An entry point of the group ``tiltframe.keys`` is registered by itself.
    """
    _KINDS[kind.kind] = kind


def key_kinds() -> Mapping[str, type[DerivedKey]]:
    """Return the kinds of derived keys by their words, including those of entry points."""
    _load_others()
    return _KINDS


@cache
def _load_others() -> None:
    load_group(GROUP, "kind of derived keys", register_kind)


def restored_key(described: Any) -> Any:
    """Restore a derived key from the result of `DerivedKey.describe`; a name is returned unchanged."""
    if not isinstance(described, Mapping):
        return described
    kind = next((kind for word, kind in key_kinds().items() if word in described), None)
    try:
        if kind is not None:
            return kind.from_description(described)
    except (KeyError, TypeError, pa.ArrowException):
        pass
    forms = " or ".join(kind.form for kind in key_kinds().values()) or "the name of a key"
    raise ValueError(f"cannot read {shown(described)} as a key; write {forms}")


def checked_keys(keys: Mapping[Any, Any]) -> dict[str, str | DerivedKey]:
    """Check and return the keys of results: keys of the frame under their own names, or derived keys."""
    for name, key in keys.items():
        if not is_name(name) or (not isinstance(key, DerivedKey) and key != name):
            derived = "".join(f", or NAME: {kind.call}" for kind in key_kinds().values())
            raise ValueError(f"a key must be a key of the frame{derived}; got {shown(name)}: {shown(key)}")
        if isinstance(key, DerivedKey):
            key.check(name)
    return dict(keys)


def noting_unmapped(
    slices: Iterator[pa.Table], derived: Mapping[str, DerivedKey], tell: Callable[[str], None]
) -> Iterator[pa.Table]:
    """Yield results, and at the end report the number of results for which a derived key has no value."""
    missing, rows = dict.fromkeys(derived, 0), 0
    for results in slices:
        rows += results.num_rows
        missing = {name: count + results.column(name).null_count for name, count in missing.items()}
        yield results
    for name, count in missing.items():
        if count:
            tell(
                f"{name} is null in {count:,} of {rows:,} results: {derived[name].reason(name)}; select both keys to "
                "see which"
            )
