"""Keys of results on the command line: a key of the frame, or the value that a file assigns to a key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aggr.arguments import shown
from aggr.call_text import read_as
from tiltframe.store import lookup


def asked_keys(texts: Iterable[str]) -> dict[str, Any] | None:
    """Return the requested keys, ``NAME`` or ``NAME=lookup(KEY, FILE, valid=as_of)``, or None if no keys are requested.

    >>> asked_keys(["host"])
    {'host': 'host'}
    """
    keys: dict[str, Any] = {}
    for text in texts:
        name, equals, call = (part.strip() for part in text.partition("="))
        if name in keys:
            raise ValueError(f"the key {shown(name)} is requested twice; name it once")
        what = "a lookup", "lookup(device, sites.csv, valid=as_of)"
        keys[name] = read_as({"lookup": lookup}, call, *what) if equals else name
    return keys or None
