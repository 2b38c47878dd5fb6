"""The manifest: the name, frame, types and retention of a store, as JSON that all later releases can read."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from aggr import UnknownFunction
from aggr.arguments import checked_mapping, shown
from aggr.sql.inputs import quoted
from tiltframe.frame import TiltFrame
from tiltframe.names import START
from tiltframe.ranges import EARLIEST_TIME
from tiltframe.store.log.carried_functions import FunctionClasses, carried_functions, register_missing
from tiltframe.store.log.errors import DamagedStore, OtherFrame, StoreError
from windows import text_of, window

# The version of the format that this release writes. Version 1 was a folder of Parquet files and a manifest. Version 2
# had histograms as lists. Versions 3 and 4 had one table per level.
FORMAT = 5
# the name of the member that contains the id of the store
_ID = "id"


def _unpickle(functions: FunctionClasses, values: tuple[Any, ...]) -> Manifest:
    """Return an unpickled manifest, after registering the functions that were pickled with it."""
    register_missing(functions)
    return Manifest(*values)


@dataclass(frozen=True)
class Manifest:
    """A store's name, frame, types and retention.

    Parameters
    ----------
    name : str
        The store's name, with which the names of its tables begin.
    frame : TiltFrame
    schema : pa.Schema
        The schema of the table of states of every level: window_start, the keys, and the columns of states.
    retention : level name -> duration
        How long levels are kept: ``{"10s": "1d"}``. Levels without an entry are kept for ever.
    generation : int
        The number of times that the frame has changed.
    dropped : pa.Schema
        The schema of the states of dropped measures, which old rows may still contain.
    earlier : tuple of tuples of str
        The columns of states of every earlier frame.
    store_id : str
        A random text that `tiltframe.store.creation.create_store` generates. If a store is deleted and another one is
        created at the same address, their ids differ. Stores of earlier releases have no id, and the text is empty.
    """

    name: str
    frame: TiltFrame
    schema: pa.Schema
    retention: Mapping[str, str] = field(default_factory=dict)
    generation: int = 0
    dropped: pa.Schema = field(default_factory=lambda: pa.schema([]))
    earlier: tuple[tuple[str, ...], ...] = ()
    store_id: str = ""

    def __hash__(self) -> int:
        """Return a hash of the name and the generation, which are faster to hash than the frame."""
        return hash((self.name, self.generation))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the manifest together with the functions that the receiving process may lack."""
        values = tuple(getattr(self, member.name) for member in fields(self))
        return _unpickle, (carried_functions(self.frame), values)

    @property
    def columns(self) -> pa.Schema:
        """The schema of all columns that rows may have: window_start, keys, states, and states of dropped measures."""
        return pa.schema([*self.schema, *self.dropped])

    @property
    def key_types(self) -> dict[str, pa.DataType]:
        """The types of the keys by which queries can group. A key that is a struct is replaced by its innermost fields,
        under the names that queries use, such as ``tags.host``.
        """
        types = dict[str, pa.DataType]()
        for key in self.frame.keys:
            dtype = self.schema.field(key).type
            # If a key has the name of a field of a struct, the name refers to the key.
            if pa.types.is_struct(dtype):
                types |= {name: field_type for name, field_type in _fields(key, dtype) if name not in self.frame.keys}
            else:
                types[key] = dtype
        return types

    def check_same_store(self, described: Mapping[str, Any], uri: str) -> None:
        """Raise an error if the store was deleted and created again since this manifest was read.

        Parameters
        ----------
        described : mapping
            The store's current manifest, as `to_dict` returned it.
        uri : str
            The address of the store, for the message.

        Raises
        ------
        OtherFrame
            If the store is another one.
        """
        if id_in(described) != self.store_id:
            raise OtherFrame(
                f"the store {uri} was deleted and created again since it was opened here; nothing was written; open "
                "the store again"
            )

    def check_frame_unchanged(self, described: Mapping[str, Any], uri: str) -> None:
        """Raise an error if the store is another one than when this manifest was read, or if its frame has changed.

        Parameters
        ----------
        described : mapping
            The store's current manifest, as `to_dict` returned it.
        uri : str
            The address of the store, for the message.

        Raises
        ------
        OtherFrame
            If the frame of the store has changed, or if another store was created at the address. If the frames differ,
            the message names the difference.
        """
        self.check_same_store(described, uri)
        if generation_in(described) == self.generation:
            return
        current_manifest = type(self).from_dict(described, uri)
        difference = self.frame.difference(current_manifest.frame) or "its states have another layout"
        raise OtherFrame(
            f"the frame of the store {uri} has changed since it was opened here: {difference}; nothing was written; "
            "open the store again"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest as values that JSON can represent."""
        from importlib.metadata import version

        functions = {
            column.measure.function.name: column.measure.function.own_state.version for column in self.frame.states
        }
        members = {
            "format": FORMAT,
            "tiltframe": version("tiltframe"),
            "name": self.name,
            "levels": [level.name for level in self.frame.levels],
            "frame": self.frame.describe(),
            "functions": functions,
            "retention": dict(self.retention),
            "schema": _schema_text(self.schema),
        }
        if self.store_id:
            members[_ID] = self.store_id
        if self.generation:
            members |= {"generation": self.generation, "dropped": _schema_text(self.dropped)}
            members["earlier"] = [list(names) for names in self.earlier]
        return {**members, "checksum": _checksum(members)}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any], uri: str) -> Manifest:
        """Restore a manifest from a description that `to_dict` returned.

        Parameters
        ----------
        described : mapping
            A description from `to_dict`.
        uri : str
            The address of the store, for messages.

        Returns
        -------
        Manifest

        Raises
        ------
        StoreError
            If a newer or an unsupported old release wrote the manifest, or functions in it are not installed.
        DamagedStore
            If the manifest has changed since it was written.
        """
        try:
            if described["format"] > FORMAT:
                raise StoreError(
                    f"the store {uri} has format {described['format']}, which is newer than this release; upgrade "
                    "tiltframe"
                )
            if described["format"] < FORMAT:
                raise StoreError(
                    f"the store {uri} has format {described['format']}, which is older than the first release and no "
                    "longer supported; roll up the rows again into a new store"
                )
            frame = TiltFrame.from_dict(described["frame"])
            for function in frame.state_functions.values():
                if described["functions"][function.name] > function.own_state.version:
                    raise StoreError(
                        f"the store {uri} contains {function.name} states of a newer release; upgrade tiltframe"
                    )
            schema, dropped = schemas_in(described)
            retention = {name: window(duration).name for name, duration in dict(described["retention"]).items()}
            if described["checksum"] != _checksum(described):
                raise DamagedStore(
                    f"the store {uri} is damaged: its manifest, with the frame and the retention, has changed since it "
                    "was written; restore it from a backup"
                )
            earlier = tuple(map(tuple, described.get("earlier", ())))
            name = check_name(described["name"])
            return cls(
                name,
                frame,
                schema=schema,
                retention=retention,
                generation=generation_in(described),
                dropped=dropped,
                earlier=earlier,
                store_id=id_in(described),
            )
        except StoreError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, pa.ArrowException) as error:
            reason = f": {error}" if isinstance(error, ValueError | TypeError) else ""
            # If the checksum is correct, the manifest is undamaged, and the error has another cause.
            if described.get("checksum") == _checksum(described):
                if isinstance(error.__cause__, UnknownFunction):
                    raise StoreError(
                        f"the store {uri} contains states of a function that is not installed here: "
                        f"{str(error).partition(';')[0]}; install the package that provides it"
                    ) from None
                raise StoreError(
                    f"the store {uri} is intact, but its frame cannot be created here{reason}; install the packages "
                    "that were installed when it was written"
                ) from None
            # Only the messages of ValueError describe the manifest. Messages of other errors describe Python code, and
            # are left out.
            cause = f": {str(error).partition('; ')[0]}" if type(error) is ValueError else ""
            raise DamagedStore(
                f"the store {uri} is damaged: its manifest, with the frame and the retention, cannot be read{cause}; "
                "restore it from a backup"
            ) from None


def _fields(path: str, dtype: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the path and the type of each innermost field of a struct. ``path`` is the path of the struct, and
    ``dtype`` is its type.
    """
    if pa.types.is_struct(dtype):
        for field_of_struct in dtype:
            yield from _fields(f"{path}.{field_of_struct.name}", field_of_struct.type)
    else:
        yield path if re.fullmatch(r"\w+(\.\w+)*", path) else quoted(path), dtype


def id_in(described: Mapping[str, Any]) -> str:
    """Return the id of the store in a manifest that `Manifest.to_dict` returned, or an empty text if it has none."""
    return str(described.get(_ID, ""))


def generation_in(described: Mapping[str, Any]) -> int:
    """Return the generation in a manifest that `Manifest.to_dict` returned: the number of times that the frame of the
    store had changed.
    """
    return int(described.get("generation", 0))


def schemas_in(described: Mapping[str, Any]) -> tuple[pa.Schema, pa.Schema]:
    """Return the schema of the states in a manifest, and the schema of the states of dropped measures."""
    texts = (described["schema"], described.get("dropped") or _schema_text(pa.schema([])))
    schema, dropped = (pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))) for text in texts)
    return schema, dropped


def _schema_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode()


def _checksum(described: Mapping[str, Any]) -> str:
    members = {name: value for name, value in described.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(members, sort_keys=True).encode()).hexdigest()[:32]


def check_levels(frame: TiltFrame) -> None:
    """Raise ``ValueError`` if a store does not support a frame's levels. Each window must begin where the previous one
    ends.
    """
    for level in frame.levels:
        if not level.contiguous:
            panes = level.pane.name if level.pane.contiguous else "1h"
            ask = f", and query {level.name}" if level.pane.contiguous else ""
            raise ValueError(
                f"a store can contain only windows that follow each other on the clock, and windows of "
                f"{level.name} do not; store {panes} instead{ask}"
            )
        text_of(level)


def checked_retention(retention: Mapping[str, str | None], frame: TiltFrame) -> dict[str, str]:
    """Check a retention, and return the durations of the levels that are not kept for ever.

    A level without a duration is kept for ever. Raise ``ValueError`` if a level would be kept for a shorter time than a
    finer level, because rows that expire on a fine level must still be in the coarser levels. In this comparison, a
    month counts as 30 days.
    """
    durations: dict[str, str | None] = {}
    for level_name, duration in checked_mapping(retention, "retention", "level -> time, such as {'10s': '1d'}").items():
        name = frame.level(level_name).name
        if name in durations:
            raise ValueError(f"the retention of {name} is listed twice; list it once")
        durations[name] = duration
    limited = {name: window(duration).name for name, duration in durations.items() if duration is not None}
    lengths = {name: window(duration).length for name, duration in limited.items()}
    for fine, coarse in pairwise(frame.levels):
        if coarse.name in limited and (fine.name not in limited or lengths[fine.name] > lengths[coarse.name]):
            raise ValueError(
                f"{fine.name} would be kept {'for ' + limited[fine.name] if fine.name in limited else 'for ever'}, and "
                f"{coarse.name}, which is computed from it, only for {limited[coarse.name]}; retain "
                f"coarse levels at least as long as fine ones"
            )
    return limited


def horizon_of(manifest: Manifest, name: str, now: int) -> int:
    """Return the time, in microseconds UTC, before which the retention of the level ``name`` removes windows at the
    time ``now``. This time is the start of a window of the next coarser level, so that either all or none of the finer
    windows in a coarser window are removed. For the coarsest level, this time is the start of a window of the level
    itself.
    """
    levels = manifest.frame.levels
    at = [level.name for level in levels].index(name)
    # If a retention is very long, the time before which windows are removed would lie before the first years of the
    # calendar. In this case, use `EARLIEST_TIME`, the start of year 3.
    until = max(now - int(window(manifest.retention[name]).length), EARLIEST_TIME)
    return int(levels[min(at + 1, len(levels) - 1)].starts(np.array([until]))[0])


def schema_of(states: pa.Schema, frame: TiltFrame) -> pa.Schema:
    """Return the schema of a store's table of states: window_start, the keys, and the columns of states. Raise
    ``ValueError`` if names differ only by case.
    """
    names = [START, *frame.keys, *(column.name for column in frame.states)]
    check_states_names(names)
    for key in frame.keys:
        _check_field_names(key, states.field(key).type)
    return pa.schema([pa.field(name, states.field(name).type) for name in names])


def _check_field_names(path: str, dtype: pa.DataType) -> None:
    """Raise ``ValueError`` if the names of two fields of a struct differ only by case. ``path`` is the name of a key,
    or the path of a struct inside a key. ``dtype`` is the type of the key or of the struct.
    """
    if pa.types.is_struct(dtype):
        check_states_names([f"{path}.{field.name}" for field in dtype])
        for field in dtype:
            _check_field_names(f"{path}.{field.name}", field.type)


def check_states_names(names: Sequence[str]) -> None:
    """Raise ``ValueError`` if names of columns differ only by case."""
    lower = [name.lower() for name in names]
    for index, name in enumerate(names):
        if name.lower() in lower[:index]:
            other = names[lower.index(name.lower())]
            raise ValueError(
                f"a store cannot have the columns {other!r} and {name!r}, which differ only by case; rename one of them"
            )


def check_name(name: str) -> str:
    """Return a store's name, which becomes part of the names of tables; raise ``ValueError`` if it is invalid."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,30}", name):
        raise ValueError(
            "the name of a store must begin with a letter and consist of at most 31 letters, digits and _; got "
            f"{shown(name)}"
        )
    return name


def check_types(manifest: Manifest, states: pa.Schema, uri: str) -> None:
    """Raise `OtherFrame` if states with the schema ``states`` cannot be merged with the states in the store."""
    for name, stored_type in zip(manifest.schema.names, manifest.schema.types, strict=True):
        dtype = states.field(name).type
        if dtype != stored_type:
            is_key = name in manifest.frame.keys
            kinds = [_type_text(column_type, is_key) for column_type in (stored_type, dtype)]
            raise OtherFrame(
                f"the store {uri} contains {kinds[0]} in {name!r}; got {kinds[1]}; convert the data to the type in the "
                "store, or write to another store"
            )


def _type_text(dtype: pa.DataType, is_key: bool) -> str:
    """Return a description of the type of a key or a column of states, for messages."""
    if is_key or not pa.types.is_struct(dtype):
        return str(dtype)
    about = [field.type for field in dtype if field.name in ("unit", "least", "greatest")]
    return f"states of {about[0]}" if about else "states"
