"""The description: what a store says of itself, in words that every later release can read."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import pyarrow as pa

from tiltframe.frame import START, TiltFrame
from tiltframe.store.tables import BUCKET, COMMIT, WRITER, StoreError, check_name
from windows import window

FORMAT = 3  # 1 was a folder of Parquet with a manifest; 2 kept histograms as lists


@dataclass(frozen=True)
class Description:
    """A store's name, frame, types and retention.

    Parameters
    ----------
    name : str
        What the names of its tables begin with.
    frame : TiltFrame
    schema : schema
        Of the states of every level: window_start, keys, states.
    retention : level name -> duration
        Such as ``{"10s": "1d"}``; levels that are not named are kept for ever.
    """

    name: str
    frame: TiltFrame
    schema: pa.Schema
    retention: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Say it as plain data, for JSON."""
        functions = {column.measure.function.name: column.measure.function.version for column in self.frame.states}
        return {
            "format": FORMAT,
            "tiltframe": version("tiltframe"),
            "name": self.name,
            "levels": [level.name for level in self.frame.levels],
            "frame": self.frame.describe(),
            "functions": functions,
            "retention": dict(self.retention),
            "schema": base64.b64encode(self.schema.remove_metadata().serialize().to_pybytes()).decode(),
        }

    @classmethod
    def from_dict(cls, described: Mapping[str, Any], uri: str) -> Description:
        """Read it back.

        Raises `StoreError` for a description of a newer release, or of newer functions, and for a damaged one.
        """
        try:
            if described["format"] > FORMAT:
                raise StoreError(
                    f"the store {uri} has format {described['format']}, newer than this release: upgrade tiltframe"
                )
            if described["format"] < FORMAT:
                raise StoreError(
                    f"the store {uri} has format {described['format']}, from before the first release, and is not read "
                    "any more: roll up its rows anew, into a new store"
                )
            frame = TiltFrame.from_dict(described["frame"])
            for function in (column.measure.function for column in frame.states):
                if described["functions"][function.name] > function.version:
                    raise StoreError(
                        f"the store {uri} keeps {function.name} states of a newer release: upgrade tiltframe"
                    )
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(described["schema"])))
            retention = {name: window(kept).name for name, kept in dict(described["retention"]).items()}
            return cls(check_name(described["name"]), frame, schema, retention)
        except StoreError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, pa.ArrowException) as error:
            raise StoreError(f"the store {uri} is damaged: its description cannot be read: {error}") from None


def schema_of(states: pa.Schema, frame: TiltFrame) -> pa.Schema:
    """Choose what a store keeps of states: window_start, keys, states.

    Raises ``ValueError`` for names that its tables need themselves or cannot tell apart.
    """
    names = [START, *frame.keys, *(column.name for column in frame.states)]
    taken = [name for name in names if name.lower() in (WRITER, COMMIT, BUCKET)]
    if taken:
        raise ValueError(f"a store has columns of its own called {WRITER}, {COMMIT} and {BUCKET}; rename {taken[0]!r}")
    lower = [name.lower() for name in names]
    for name in names:
        if lower.count(name.lower()) > 1:
            raise ValueError(f"a store does not tell {name!r} from a name that differs by case only; rename one")
    return pa.schema([pa.field(name, states.field(name).type) for name in names])
