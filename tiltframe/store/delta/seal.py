"""Seals: what an entry of a Delta log says of itself, so that damage to it, or its loss, is noticed.

Every commit of a store writes into its entry's ``commitInfo``, under ``tiltframe``:

    checksum   SHA-256 of the table, the version, what follows, and the entry's actions
    previous   SHA-256 of the bytes of the entry before
    seen       how far the store's other logs went when this entry was written

So no entry can be changed, swapped or taken from another log, and a log that ends before another one has seen it end
has lost entries. A coarser level that only lags has lost nothing that anyone has seen.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from deltalake import Transaction
from deltalake.transaction import AddAction, RemoveAction

SEAL = "tiltframe"
_VACUUM = ("VACUUM START", "VACUUM END")  # entries of Delta's own without actions

Seen = Mapping[str, tuple[str, int]]  # name of a table -> its identity and version


class Broken(Exception):
    """An entry of a log is not as it was written; the text says why."""


@dataclass(frozen=True)
class Entry:
    """What an entry of a log that was verified tells: the checksum of its bytes, and how far other logs went."""

    digest: str
    seen: Seen


def seal(
    table: str,
    version: int,
    previous: str,
    seen: Seen,
    actions: Sequence[AddAction | RemoveAction],
    transactions: Sequence[Transaction],
    schema: str = "",
) -> dict[str, str]:
    """Seal an entry that is about to be written: what goes into its commitInfo.

    Parameters
    ----------
    table : str
        The table's identity, which Delta chooses when it is made.
    version : int
        That the entry will have.
    previous : str
        Checksum of the bytes of the entry before.
    seen : name -> (identity, version)
        How far the store's other logs went.
    schema : str
        In JSON, of an entry that adds columns.
    """
    told = [_told_action(action) for action in actions]
    told += [["metaData", json.loads(schema)]] if schema else []
    told += [["txn", each.app_id, each.version] for each in transactions]
    held: dict[str, Any] = {"previous": previous, "seen": {name: list(at) for name, at in seen.items()}}
    return {SEAL: json.dumps({"checksum": _checksum(table, version, held, told), **held})}


def verified(data: bytes, table: str, version: int, previous: str | None, sealed: bool = True) -> Entry:
    """Check an entry that was read; raises `Broken` unless it is as it was written.

    Parameters
    ----------
    data : bytes
        Of the whole entry.
    table, version
        Of which log, and at which place in it.
    previous : str or None
        Checksum of the bytes of the entry before, if that is known.
    sealed : bool
        Whether a later entry must have a seal; those of the description, which has a checksum itself, have none.
    """
    try:
        lines = [json.loads(line) for line in data.decode().splitlines() if line]
        info = [line["commitInfo"] for line in lines if "commitInfo" in line]
        told = [_told_line(action, held) for line in lines for action, held in line.items() if action != "commitInfo"]
        if not (version and sealed) and any(action[0] == "metaData" for action in told):
            return Entry(digest_of(data), {})  # its bytes are sealed by the next entry
        if len(info) == 1 and not told and info[0].get("operation") in _VACUUM:
            return Entry(digest_of(data), {})
        if len(info) != 1 or SEAL not in info[0]:
            raise Broken("it was cut off, or another tool has written it")
        held = json.loads(info[0][SEAL])
        checksum = held.pop("checksum")
        if checksum != _checksum(table, version, held, told):
            raise Broken("its checksum differs")
        if previous not in (None, held["previous"]):
            raise Broken("it does not follow the entry before it")
        seen = {name: (str(identity), int(at)) for name, (identity, at) in held["seen"].items()}
        return Entry(digest_of(data), seen)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise Broken("it cannot be read") from None


def digest_of(data: bytes) -> str:
    """Return the checksum of the bytes of an entry or a checkpoint."""
    return hashlib.sha256(data).hexdigest()[:32]


def _told_action(action: AddAction | RemoveAction) -> list[Any]:
    if isinstance(action, AddAction):
        stats = json.loads(action.stats or "null")
        return ["add", action.path, action.size, dict(action.partition_values), stats]
    return ["remove", action.path]


def _told_line(action: str, held: Mapping[str, Any]) -> list[Any]:
    """Tell an action as it stands in a log, in what decides its meaning."""
    if action == "add":
        stats = json.loads(held["stats"] or "null")
        vector = [held["deletionVector"]] if held.get("deletionVector") else []
        return ["add", unquote(held["path"]), held["size"], held["partitionValues"], stats, *vector]
    if action == "remove":
        return ["remove", unquote(held["path"])]
    if action == "metaData":
        return ["metaData", json.loads(held["schemaString"])]
    return ["txn", held["appId"], held["version"]] if action == "txn" else [action, dict(held)]


def _checksum(table: str, version: int, held: Mapping[str, Any], told: Iterable[list[Any]]) -> str:
    actions = sorted(json.dumps(action, sort_keys=True) for action in told)
    text = json.dumps([table, version, held, actions], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
