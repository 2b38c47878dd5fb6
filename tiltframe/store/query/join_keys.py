"""The condition ``on`` of a join: keys of the store, and the columns or expressions of the rows that must be equal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

from aggr import sql
from aggr.arguments import checked_names, is_name, nearest, shown
from aggr.sql.inputs import columns_in, quoted

On: TypeAlias = "str | Sequence[str] | Mapping[str, str]"
# the qualifiers of names in a condition such as row.symbol = store.symbol
ROW = "row"
STORE = "store"


def check_on(on: Any) -> None:
    """Check a condition without the rows and the store. Raise ``ValueError`` if the condition is invalid."""
    if isinstance(on, str):
        if sql.column_of(on) is None:
            sql.equalities(on, (ROW, STORE))
    elif isinstance(on, Mapping):
        for key, text in on.items():
            if not is_name(key) or not is_name(text):
                raise ValueError(
                    f"a mapping in on= must have keys of the store, and columns or expressions of the rows as values, "
                    f"such as {{'symbol': 'upper(ticker)'}}; "
                    f"got {shown(key)}: {shown(text)}"
                )
    else:
        checked_names(on, "on", "keys of the store")
    if not on:
        raise ValueError("the parameter 'on' is empty; name at least one key of the store, as in on=['symbol']")


def read_on(on: On, names: Collection[str], keys: Collection[str]) -> dict[str, str]:
    """Return the condition as a mapping: key of the store → column or expression of the rows. ``names`` are the columns
    of the rows, and ``keys`` the keys of the store. Raise ``ValueError`` if a key or a column does not exist.

    >>> read_on("ticker = symbol AND row.venue = store.venue", ["ticker", "venue"], ["symbol", "venue"])
    {'symbol': 'ticker', 'venue': 'venue'}
    """
    if isinstance(on, str):
        name = sql.column_of(on)
        pairs = [(name, quoted(name))] if name is not None else _key_equalities(on, names, keys)
    else:
        pairs = list(on.items()) if isinstance(on, Mapping) else [(key, quoted(key)) for key in on]
    for key, text in pairs:
        if key not in keys:
            raise ValueError(f"the store has no key {shown(key)} to join on; {nearest(key, keys)}")
        columns_in(text, names)
    if len(dict(pairs)) < len(pairs):
        raise ValueError(f"the parameter 'on' contains a key twice: {shown(on)}; name each key once")
    return dict(pairs)


def _key_equalities(on: str, names: Collection[str], keys: Collection[str]) -> list[tuple[str, str]]:
    """Return the equalities of the condition ``on`` as pairs: a key of the store, and an expression of the rows that
    must be equal to it.
    """
    pairs = []
    for left, right in sql.equalities(on, (ROW, STORE)):
        candidates = [
            (key.text, _row_text(row)) for key, row in ((right, left), (left, right)) if _is_key(key, row, keys)
        ]
        if len(candidates) > 1:
            candidates = [
                (key, text) for key, text in candidates if set(sql.columns_of(text, "expression")) <= set(names)
            ] or candidates
        if len(set(candidates)) > 1:
            raise ValueError(
                f"{left.text} = {right.text} can be read in two ways, because both are keys of the store and columns "
                f"of the rows; write {ROW}.{left.text} = {STORE}.{right.text}"
            )
        if not candidates:
            raise ValueError(
                f"{left.text} = {right.text} does not compare a key of the store with the row; one side must be a key "
                f"of the store ({', '.join(keys) or 'it has none'}), and the other side an expression of the row's "
                "columns"
            )
        pairs.append(candidates[0])
    return pairs


def _is_key(side: sql.Side, other: sql.Side, keys: Collection[str]) -> bool:
    """Return whether ``side`` of an equality can be a key of the store, and ``other`` an expression of the rows."""
    return side.is_column and side.text in keys and ROW not in side.qualifiers and STORE not in other.qualifiers


def _row_text(side: sql.Side) -> str:
    is_plain = side.is_column and "." not in side.text
    return quoted(side.text) if is_plain else side.text
