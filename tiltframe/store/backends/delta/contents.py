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

# The name of the entry for the manifest in the metadata of the column ``level``.
_MANIFEST = "tiltframe"


@dataclass(frozen=True)
class Contents:
    """The contents of a store's table at one version."""

    version: int = -1
    manifest_json: str | None = None
    manifest: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    records: tuple[RecordFile, ...] = ()

    def after_commit(
        self,
        *,
        added_parts: Sequence[Part],
        removed_parts: Sequence[Part],
        added_records: Sequence[RecordFile],
        removed_records: Sequence[RecordFile],
    ) -> Contents:
        """Return the contents after a commit that adds and removes parts and files of records. The version is one
        higher.
        """
        names = {*(part.name for part in removed_parts), *(file.name for file in removed_records)}
        parts = (*(part for part in self.parts if part.name not in names), *added_parts)
        files = (*(file for file in self.records if file.name not in names), *added_records)
        return replace(self, version=self.version + 1, parts=parts, records=files)


def contents_of(table: DeltaTable, previous_contents: Contents, uri: str) -> Contents:
    """Return the contents of a table. Return ``previous_contents`` if the table still has the same version. A manifest
    that has not changed since ``previous_contents`` is not parsed again. ``uri`` is the address of the store, for
    messages.
    """
    version = table.version()
    if previous_contents.version == version:
        return previous_contents
    text = next((f.metadata.get(_MANIFEST) for f in table.schema().fields if f.name == LEVEL), None)
    # Before format 5, the manifest was in the configuration of the table.
    text = text or table.metadata().configuration.get(_MANIFEST)
    manifest = previous_contents.manifest
    if text != previous_contents.manifest_json or not manifest:
        manifest = parse_manifest(text, uri)
    parts, records = files_of_actions(pa.table(table.get_add_actions(flatten=True)), uri)
    return Contents(version, text, manifest=manifest, parts=parts, records=records)


def table_schema(columns: pa.Schema, manifest: str) -> Schema:
    """Return the schema of a store's table with its manifest. The columns whose minimum and maximum are stored in the
    log come first.
    """
    stored_fields = stored_schema(columns)
    fields_before_level = [
        stored_fields.field(START),
        pa.field(END, INSTANT),
        *SCHEMA,
        *list(stored_fields)[1:],
        pa.field(BUCKET, pa.string()),
    ]
    level = Field(LEVEL, PrimitiveType("string"), nullable=True, metadata={_MANIFEST: manifest})
    return Schema([*Schema.from_arrow(pa.schema(fields_before_level)).fields, level])
