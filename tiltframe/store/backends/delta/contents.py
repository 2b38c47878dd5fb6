"""The contents of a store's table at one version: the manifest, the parts and the files of records.

The metadata of the column ``level`` contain the manifest, because one commit can change both these metadata and the
files of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from tiltframe.event_time import INSTANT
from tiltframe.names import BUCKET, END, LEVEL, START
from tiltframe.store.backends.delta.log import files_of_actions, parse_manifest
from tiltframe.store.backends.delta.records import SCHEMA, RecordFile
from tiltframe.store.backends.protocol import Part
from tiltframe.store.backends.stored_types import stored_schema

_MANIFEST = "tiltframe"  # the key of the manifest in the metadata


@dataclass(frozen=True)
class Contents:
    """The contents of the table at one version."""

    version: int = -1
    text: str | None = None  # the manifest as JSON
    manifest: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    records: tuple[RecordFile, ...] = ()

    def after(
        self,
        added: Sequence[Part],
        removed: Sequence[Part],
        records: Sequence[RecordFile],
        outdated: Sequence[RecordFile],
    ) -> Contents:
        """Return the contents of the next version. Its commit adds and removes parts, adds the files ``records``, and
        removes the files ``outdated``.
        """
        names = {*(part.name for part in removed), *(file.name for file in outdated)}
        parts = (*(part for part in self.parts if part.name not in names), *added)
        files = (*(file for file in self.records if file.name not in names), *records)
        return replace(self, version=self.version + 1, parts=parts, records=files)


def contents_of(table: DeltaTable, before: Contents, uri: str) -> Contents:
    """Return the contents of a table, which are ``before`` if the table still has their version. A manifest that has
    not changed since then is not parsed again. ``uri`` is the address of the store, for messages.
    """
    version = table.version()
    if before.version == version:
        return before
    text = next((f.metadata.get(_MANIFEST) for f in table.schema().fields if f.name == LEVEL), None)
    text = text or table.metadata().configuration.get(_MANIFEST)  # the place of the manifest before format 5
    manifest = before.manifest
    if text != before.text or not manifest:
        manifest = parse_manifest(text, uri)
    parts, records = files_of_actions(pa.table(table.get_add_actions(flatten=True)), uri)
    return Contents(version, text, manifest=manifest, parts=parts, records=records)


def table_schema(columns: pa.Schema, manifest: str) -> Schema:
    """Return the schema of a store's table with its manifest. The columns whose minimum and maximum are stored in the
    log come first.
    """
    stored_fields = stored_schema(columns)
    leading_fields = [
        stored_fields.field(START),
        pa.field(END, INSTANT),
        *SCHEMA,
        *list(stored_fields)[1:],
        pa.field(BUCKET, pa.string()),
    ]
    level = Field(LEVEL, PrimitiveType("string"), nullable=True, metadata={_MANIFEST: manifest})
    return Schema([*Schema.from_arrow(pa.schema(leading_fields)).fields, level])
