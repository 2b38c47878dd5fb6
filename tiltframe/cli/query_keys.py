"""The option ``--key`` of queries. A key of the results is either a key of the frame, or a new key that a lookup
computes. A lookup reads the values of the new key from a file with one row for each value of a key of the frame.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aggr.arguments import shown
from aggr.call_text import evaluate_call
from tiltframe.store import key_kinds


def query_keys_from(texts: Iterable[str]) -> dict[str, Any] | None:
    """Return the keys of the results, as a dict from their names to keys of the frame or lookups. Each of ``texts`` is
    ``NAME`` or ``NAME=lookup(KEY, FILE, valid=as_of)``. Return None if there are no texts.

    >>> query_keys_from(["host"])
    {'host': 'host'}
    """
    keys: dict[str, Any] = {}
    for text in texts:
        name, equals, call = (part.strip() for part in text.partition("="))
        if name in keys:
            raise ValueError(f"the key {shown(name)} is requested twice; name it once")
        keys[name] = _read_derived(call) if equals else name
    return keys or None


def _read_derived(call: str) -> Any:
    """Return the lookup that a call such as ``lookup(host, hosts.csv)`` describes. Raise ``ValueError`` if the text is
    not such a call, or if no package provides lookups.
    """
    kinds = key_kinds()
    if not kinds:
        raise ValueError(f"cannot read {shown(call)} as a key; write the name of a key of the frame")
    what = " or ".join(f"a {word}" for word in kinds)
    example = " or ".join(kind.text for kind in kinds.values())
    return evaluate_call({word: kind.make for word, kind in kinds.items()}, call, what, example)
