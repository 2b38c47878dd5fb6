"""Source: files with a common schema, which are read as one stream of Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from aggr.arrow import compute as pc
from aggr.arrow import versions
from aggr.arrow.normalize import is_number, normalize
from aggr.sql.number_columns import Use, number_column
from aggr.tables.column_uses import Uses
from tiltframe.files.digits import parse_texts
from tiltframe.files.formats import (
    has_types,
    kind_of,
    read_columns,
    schema_of_file,
    wider_type,
)
from tiltframe.files.read_options import NO_OPTIONS, ReadOptions
from tiltframe.files.reading_errors import check_text_file, reading_error
from tiltframe.files.rows import columns_to_prepare, convert_times, prepare_rows
from tiltframe.files.type_widening import WiderTypeNeeded
from tiltframe.files.written_numbers import (
    needs_numbers,
    number_arrays,
    with_number_columns,
)
from tiltframe.files.wrong_values import find_non_number, find_wrong_value, first_unreadable
from tiltframe.units_of_numbers import DAYS, refuse_other_units

_CODES = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True)
class Source:
    """Files that are read with one schema. They may have different formats.

    Attributes
    ----------
    files : tuple of Path
    schema : pa.Schema
        The columns of all files. Their types are the declared ones, or types that represent the values in all files. If
        functions read the numbers of a text column, the schema also has a column of numbers
        (`aggr.sql.number_columns`).
    time : str
        The name of the column of event times.
    uses : column -> uses
        How measures and keys use a column. The use decides whether the digits of the column must be preserved.
    reading : ReadOptions
    timezone : str
        The time zone of the windows. Dates, and the times in expressions, are read in this zone.
    schema_before_time : pa.Schema, optional
        The schema of the rows before an expression computes their event times. The result of the expression is then
        added as a column, or replaces a column. None if there is no such expression.
    file_schemas : file -> pa.Schema
        The schema of each file, as it was read or inferred from this file alone.
    key_texts : set of str
        Keys that are read as text although their values look like dates or times.
    complete_structs : set of str
        Columns of structs that are read with all fields, and not only with the fields of the first rows.
    """

    files: tuple[Path, ...]
    schema: pa.Schema
    time: str
    uses: Uses = field(default_factory=dict)
    reading: ReadOptions = NO_OPTIONS
    timezone: str = "UTC"
    schema_before_time: pa.Schema | None = None
    file_schemas: Mapping[Path, pa.Schema] = field(default_factory=dict)
    key_texts: frozenset[str] = frozenset()
    complete_structs: frozenset[str] = frozenset()

    @property
    def bytes(self) -> int:
        """The size of all files in bytes."""
        return sum(file.stat().st_size for file in self.files)

    @property
    def replaceable_columns(self) -> list[str]:
        """The columns whose types may be replaced by those of a store. If all files are CSV or TSV, these are the
        columns whose types were inferred, except the event time. Otherwise, they are the keys in ``key_texts``.
        """
        files = [file for file in self.files if kind_of(file) in ("csv", "tsv")]
        if len(files) < len(self.files):
            return [name for name in self.schema.names if name in self.key_texts]
        return [name for name in self.schema.names if name not in self.reading.declared and name != self.time]

    def with_dictionaries(self, names: Sequence[str]) -> Source:
        """Return a source that reads the text columns ``names`` as dictionaries, which are grouped faster. If a file is
        not Parquet, return this source unchanged.
        """
        if any(kind_of(file) != "parquet" for file in self.files):
            return self
        names_to_encode = [name for name in names if number_column(name) not in self.schema.names]
        fields = [
            f.with_type(_CODES) if f.name in names_to_encode and pa.types.is_string(f.type) else f for f in self.schema
        ]
        return replace(self, schema=pa.schema(fields))

    def with_wider_type(self, needed: WiderTypeNeeded) -> Source:
        """Return a source in which the column ``needed.column`` has the type ``needed.kind``. If this type is text and
        functions read the numbers of the column, the schema also has a column of its numbers.
        """
        at = self.schema.get_field_index(needed.column)
        before = self.schema.field(at).type
        schema = self.schema.set(at, self.schema.field(at).with_type(needed.kind))
        if pa.types.is_string(needed.kind) and is_number(before):
            uses = self.uses.get(needed.column, frozenset())
            schema = with_number_columns(
                schema, {needed.column: before} if needs_numbers(uses, is_declared=False) else {}
            )
        return replace(self, schema=schema)

    def batches(
        self, columns: Sequence[str], after_file: Callable[[Path], None] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches of all files with the columns ``columns``: at least one batch, which may be empty.
        ``after_file`` is called with each file after its last batch.
        """
        schema = pa.schema([self.schema.field(name) for name in columns])
        yield pa.RecordBatch.from_pylist([], schema)
        for file in self.files:
            yield from self.batches_of_file(file, columns)
            if after_file is not None:
                after_file(file)

    def batches_of_file(
        self, file: Path, columns: Sequence[str], rows: Iterable[pa.RecordBatch] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches of one file with the columns ``columns``. If ``rows`` is passed, it has batches that were
        already read from this file, and the file is not read again.
        """
        needed_schema = self.columns_to_read(columns)
        before = file.stat()
        file_schema = self.file_schemas.get(file) or schema_of_file(file, self.reading)
        types = self._types_to_read(file, needed_schema, file_schema)
        try:
            if rows is None:
                check_text_file(file, self.reading)
                # ``file_schema`` was inferred from the first rows of the file. In JSON, a column may first appear in a
                # later row, so columns are requested even if ``file_schema`` lacks them.
                is_json = kind_of(file) == "json"
                present = [name for name in needed_schema.names if is_json or name in file_schema.names]
                rows = read_columns(
                    file,
                    present,
                    types=types,
                    uses=self.uses,
                    reading=self.reading,
                    complete_structs=[name for name in self.complete_structs if name in present],
                )
            for batch in rows:
                if has_types(file):
                    _check_texts(batch, file)
                batch = self._with_types(batch, needed_schema, file)
                for name, numbers in number_arrays(batch, self.schema, self.reading):
                    batch = versions.append_column(batch, name, numbers)
                yield prepare_rows(batch, columns, time=self.time, reading=self.reading, timezone=self.timezone)
        except pa.ArrowCancelled:  # Ctrl-C has interrupted a function of Arrow.
            raise KeyboardInterrupt from None
        except (pa.ArrowException, OSError, UnicodeError) as error:
            kinds = dict(zip(types.names, types.types, strict=True))
            self._raise_wider_type(file, kinds, error)
            raise reading_error(
                file, error, lambda: find_wrong_value(file, kinds, self.reading, self._preserved_columns())
            ) from None
        after = file.stat()
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise ValueError(f"{file} changed while it was read; wait until the file is complete, and try again")

    def columns_to_read(self, columns: Sequence[str]) -> pa.Schema:
        """Return the schema of the columns that must be read from files: those in ``columns``, and those that are
        needed to compute the event times and the condition of ``reading``.
        """
        return columns_to_prepare(columns, self.schema, self.schema_before_time, time=self.time, reading=self.reading)

    def _raise_wider_type(self, file: Path, kinds: Mapping[str, pa.DataType], error: Exception) -> None:
        """Find the first value of a CSV file that does not fit the inferred type of its column, and raise
        `WiderTypeNeeded` with a wider type for the column. Do nothing if there is no such value, or if no wider type is
        possible.
        """
        if kind_of(file) not in ("csv", "tsv") or not isinstance(error, pa.ArrowInvalid):
            return
        inferred = [n for n in kinds if n in self.replaceable_columns and not pa.types.is_string(kinds[n])]
        parsers = {name: partial(parse_texts, kind=kinds[name], reading=self.reading) for name in inferred}
        unread = first_unreadable(file, parsers, self.reading)
        if unread is None:
            return
        line, name, text = unread
        uses = self.uses.get(name, frozenset())
        wider = wider_type(file, name, guess=kinds[name], uses=uses, reading=self.reading)
        if wider is not None and kinds[name] != (kind := pa.float64() if wider == "float64" else pa.string()):
            raise WiderTypeNeeded(
                name,
                kind,
                lambda: (
                    f"{file}: {text!r} in line {line:,}, in the column {name!r}, does not have the type of the first "
                    f"rows, {kinds[name]}; declare the type with {self.reading.type_option_text(name, wider)}"
                ),
            ) from None

    def _preserved_columns(self) -> list[str]:
        return [name for name, uses in self.uses.items() if Use.KEEP in uses]

    def check(self, check: Callable[[pa.Schema], None]) -> None:
        """Call ``check`` with the schema, and raise the error that it raises.

        The cause may be that a column contains text, although ``check`` requires numbers. In this case, raise another
        error, which names the first text in the column that is not a number, and its line.
        """
        try:
            check(self.schema)
        except (TypeError, ValueError):
            for place, column in enumerate(self.schema):
                if not pa.types.is_string(column.type) or not _accepts_numbers(check, self.schema, place):
                    continue
                for file in self.files:
                    if error_with_line := find_non_number(file, column.name, self.reading):
                        raise error_with_line from None
            raise

    def _types_to_read(self, file: Path, needed_schema: pa.Schema, file_schema: pa.Schema) -> pa.Schema:
        """Return the types in which the columns of ``needed_schema`` are read from a file. They are those of
        ``needed_schema``, with one exception: in a text file, the column of event times is read as text or numbers, and
        converted to instants later. ``file_schema`` has the types that were inferred from the file.
        """
        at = needed_schema.get_field_index(self.time)
        if at < 0 or self.reading.time is not None or has_types(file):
            return needed_schema
        if (fractional_type := self.reading.fractional_time_type(self.time)) is not None:
            return needed_schema.set(
                at, pa.field(self.time, fractional_type if kind_of(file) == "json" else pa.string())
            )
        place = file_schema.get_field_index(self.time)
        declared = self.reading.declared.get(self.time)
        # An integer would lose the first zero of 01052024, which is 1 May 2024 in the format %d%m%Y.
        keeps_zeros = self.reading.time_format is not None and kind_of(file) != "json"
        is_integer = place >= 0 and pa.types.is_integer(file_schema.field(place).type)
        kind = pa.int64() if is_integer and not (is_text_type(declared) or keeps_zeros) else pa.string()
        return needed_schema.set(at, pa.field(self.time, kind))

    def _with_types(self, batch: pa.RecordBatch, schema: pa.Schema, file: Path) -> pa.RecordBatch:
        """Return a batch of a file with the columns and types of ``schema``. Event times are converted to instants.
        Columns that the file lacks are null.
        """
        columns = []
        for name, kind in zip(schema.names, schema.types, strict=True):
            if name not in batch.schema.names or pa.types.is_null(kind):
                column = pa.nulls(batch.num_rows, kind)
            elif batch.column(name).type == kind == _CODES:
                column = batch.column(name)
            else:
                column = normalize(batch.column(name))
                if name == self.time and self.reading.time is None:
                    column = self._convert_event_times(column, kind, file)
            if column.type != kind:
                column = column.cast(pa.string()).dictionary_encode() if kind == _CODES else column.cast(kind)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _convert_event_times(self, column: pa.Array, kind: pa.DataType, file: Path) -> pa.Array:
        """Return a column of event times as instants of the type ``kind``. Raise ``ValueError`` if a value is not a
        time, or if whole numbers without a declared unit look like seconds or dates.
        """
        reading = self.reading
        is_stated = self.time in reading.declared or reading.time_format is not None
        if pa.types.is_integer(column.type) and not is_stated:
            try:
                refuse_other_units(column, self.time, partial(self._declaration, file))
            except ValueError as error:
                raise ValueError(f"{file}: {error}") from None
        try:
            return (
                column
                if column.type == kind
                else convert_times(column, self.time, self.reading, self.timezone).cast(kind)
            )
        except ValueError as error:
            raise (self._error_of_first_time(file) or ValueError(f"{file}: {error}")) from None

    def _error_of_first_time(self, file: Path) -> ValueError | None:
        """Return the error for the first text of a CSV file that is not a time, with its line. Return None if all texts
        are times, or for another format.
        """
        if kind_of(file) not in ("csv", "tsv"):
            return None
        unreadable = first_unreadable(file, {self.time: self._parse_event_times}, self.reading)
        if unreadable is None:
            return None
        line, _, text = unreadable
        try:
            self._parse_event_times(pa.array([text], pa.string()))
        except ValueError as error:
            return ValueError(f"{file}, line {line:,}: {error}")
        return None

    def _declaration(self, file: Path, kind: str) -> str:
        """Return, for messages, the option that declares ``kind`` as the unit or the format of the times in a file."""
        if kind == DAYS and kind_of(file) != "json":  # JSON numbers cannot be declared as text
            return self.reading.type_option_text(self.time, "text")
        return self.reading.time_option_text(self.time, kind)

    def _parse_event_times(self, texts: pa.Array) -> pa.Array:
        """Return the event times of a text column of a CSV file; raise ``ValueError`` if a text is not a time."""
        texts = pc.if_else(pc.is_in(texts, pa.array(["", *self.reading.null])), None, texts)
        with suppress(pa.ArrowInvalid):
            is_text = is_text_type(self.reading.declared.get(self.time)) or self.reading.time_format is not None
            texts = texts if is_text else texts.cast(pa.int64())
        return convert_times(texts, self.time, self.reading, self.timezone)


def _check_texts(batch: pa.RecordBatch, file: Path) -> None:
    """Raise ``ValueError`` if a text column contains bytes that are not UTF-8, which Arrow does not check in Parquet
    files.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        has_dictionary = pa.types.is_dictionary(column.type)
        texts = column.dictionary if has_dictionary else column
        if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
            continue
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid:
            with suppress(pa.ArrowInvalid):
                if has_dictionary:  # the dictionary may have texts that no row has
                    column.dictionary_decode().validate(full=True)
                    continue
            raise ValueError(
                f"{file}: the column {name!r} contains a text that is not UTF-8; write the column as UTF-8, or with "
                "the type binary"
            ) from None


def is_text_type(kind: pa.DataType | None) -> bool:
    """Return whether event times with the declared type ``kind`` are read as text, and not as integers. Return False if
    ``kind`` equals None, because no type was declared.
    """
    return kind is not None and not pa.types.is_integer(kind)


def _accepts_numbers(check: Callable[[pa.Schema], None], schema: pa.Schema, place: int) -> bool:
    """Return whether ``check`` accepts the schema after the type of the text column at the index ``place`` is replaced
    by float64.
    """
    try:
        check(schema.set(place, schema.field(place).with_type(pa.float64())))
    except (TypeError, ValueError):
        return False
    return True
