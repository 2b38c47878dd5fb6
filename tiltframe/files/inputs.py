"""Inputs: files and folders in Parquet, CSV, JSON and further formats, which are read as one stream of Arrow
batches.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from aggr.arrow import compute as pc
from aggr.arrow import versions
from aggr.arrow.normalize import is_number, normalize, normalized_type
from aggr.sql.inputs import columns_in
from aggr.sql.number_columns import Use, number_column
from aggr.tables.column_uses import ColumnUses, Uses
from tiltframe.event_time import INSTANT
from tiltframe.files.digits import parse_texts
from tiltframe.files.formats import (
    delimiter_of,
    first_texts,
    has_types,
    kind_of,
    known_endings,
    read_columns,
    schema_of_file,
    wider_type,
)
from tiltframe.files.key_texts import with_key_texts
from tiltframe.files.read_options import NO_OPTIONS, ReadOptions
from tiltframe.files.rows import columns_to_prepare, convert_times, prepare_rows, with_time_column
from tiltframe.files.soundness import check_text
from tiltframe.files.type_widening import WiderTypeNeeded
from tiltframe.files.written_numbers import (
    find_number_types,
    is_number_or_boolean,
    needs_numbers,
    number_arrays,
    stays_text,
    with_number_columns,
)
from tiltframe.files.wrong_values import explain_parse_error, find_non_number, find_wrong_value, first_unreadable
from tiltframe.parameter_names import parameter_text
from tiltframe.store_folders import is_store
from tiltframe.units_of_numbers import DAYS, refuse_other_units

_EXCEL = re.compile(r"(?i)\.xls[xmb]?$")
_CODES = pa.dictionary(pa.int32(), pa.string())
_NO_USES = ColumnUses()


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
                _check_text_file(file, self.reading)
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
                batch = self._with_types(batch, needed_schema, file)
                for name, numbers in number_arrays(batch, self.schema, self.reading):
                    batch = versions.append_column(batch, name, numbers)
                yield prepare_rows(batch, columns, time=self.time, reading=self.reading, timezone=self.timezone)
        except pa.ArrowCancelled:  # Ctrl-C has interrupted a function of Arrow.
            raise KeyboardInterrupt from None
        except (pa.ArrowException, OSError, UnicodeError) as error:
            kinds = dict(zip(types.names, types.types, strict=True))
            self._raise_wider_type(file, kinds, error)
            raise _reading_error(
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
        kind = pa.int64() if is_integer and not (_is_text(declared) or keeps_zeros) else pa.string()
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
            place = str(file)
            if kind_of(file) in ("csv", "tsv"):
                unreadable = first_unreadable(file, {self.time: self._parse_event_times}, self.reading)
                place = f"{file}, line {unreadable[0]:,}" if unreadable else place
            raise ValueError(f"{place}: {error}") from None

    def _declaration(self, file: Path, kind: str) -> str:
        """Return, for messages, the option that declares ``kind`` as the unit or the format of the times in a file."""
        if kind == DAYS and kind_of(file) != "json":  # JSON numbers cannot be declared as text
            return self.reading.type_option_text(self.time, "text")
        return self.reading.time_option_text(self.time, kind)

    def _parse_event_times(self, texts: pa.Array) -> pa.Array:
        """Return the event times of a text column of a CSV file; raise ``ValueError`` if a text is not a time."""
        texts = pc.if_else(pc.is_in(texts, pa.array(["", *self.reading.null])), None, texts)
        with suppress(pa.ArrowInvalid):
            is_text = _is_text(self.reading.declared.get(self.time)) or self.reading.time_format is not None
            texts = texts if is_text else texts.cast(pa.int64())
        return convert_times(texts, self.time, self.reading, self.timezone)


def open_source(
    inputs: Sequence[str | Path],
    time: str,
    uses: ColumnUses = _NO_USES,
    reading: ReadOptions = NO_OPTIONS,
    timezone: str = "UTC",
    sample: Callable[[Path], Path] = lambda file: file,
) -> Source:
    """Return files, and the files in folders, as a `Source` with a common schema.

    Parameters
    ----------
    inputs : sequence of paths
        A folder stands for all files of known formats in it and its subfolders, except the folders of stores. The
        notation of the event times may differ between files.
    time : str
        The column of event times.
    uses : ColumnUses
        How measures and keys use columns. The use decides whether the digits of a column must be preserved.
    reading : ReadOptions
    timezone : str
        The time zone of the windows. Dates, and the times in expressions, are read in this zone.
    sample : function
        A function that receives a file, and returns the file from which its types are inferred: the same file, or a
        sample of it.

    Raises
    ------
    FileNotFoundError
        If a path does not exist.
    ValueError
        If a folder has no data, a format is unknown, a file is empty or damaged, or the types of a column in two files
        have no common type.
    """
    files = list(dict.fromkeys(file.resolve() for source in inputs for file in _find_files(Path(source))))
    working_folder = Path.cwd()
    files = [file.relative_to(working_folder) if file.is_relative_to(working_folder) else file for file in files]
    schema: pa.Schema | None = None
    file_schemas: dict[Path, pa.Schema] = {}
    key_texts = set[str]()
    for file in files:
        if not file.stat().st_size:
            raise ValueError(f"{file} is empty: it has no columns and no rows; leave it out")
        try:
            file_schemas[file] = schema_of_file(sample(file), reading, uses.is_missing)
            inferred = _schema_to_read(file, file_schemas[file], time=time, uses=uses, reading=reading)
            is_text_file = not has_types(file)
            schema_of_types = with_key_texts(inferred, time, uses, reading) if is_text_file else inferred
            key_texts |= {
                name for name in schema_of_types.names if schema_of_types.field(name).type != inferred.field(name).type
            }
        except (pa.ArrowException, OSError, UnicodeError) as error:
            _check_text_file(file, reading)
            raise _reading_error(file, error, partial(explain_parse_error, file, error, reading)) from None
        try:
            schema = schema_of_types if schema is None else _unify_schemas(schema, schema_of_types, uses)
        except pa.ArrowException as error:
            raise ValueError(
                f"{file} does not match the previous files: {_first_line(error)}{_hint(error, reading)}"
            ) from None
    assert schema is not None
    at = schema.get_field_index(time)
    # The column has the type null if the files have no rows, or no event times.
    if at >= 0 and reading.time is None and pa.types.is_null(schema.field(at).type):
        schema = schema.set(at, pa.field(time, INSTANT))
    by_column = uses.among(tuple(schema.names))
    texts = {
        file: names
        for file in files
        if (names := _columns_to_examine(file, file_schemas[file], schema=schema, uses=by_column, reading=reading))
    }
    samples = {file: _first_texts(file, sample(file), names, reading) for file, names in texts.items()}
    schema = _with_texts(schema, samples, by_column, reading)
    numbers = find_number_types(
        schema, lambda name: [sample[name] for sample in samples.values() if name in sample], uses, reading
    )
    schema_before_time = None if reading.time is None else schema
    schema = with_number_columns(with_time_column(schema, time, reading), numbers)
    return Source(
        files=tuple(files),
        schema=schema,
        time=time,
        uses=by_column,
        reading=reading,
        timezone=timezone,
        schema_before_time=schema_before_time,
        file_schemas=file_schemas,
        key_texts=frozenset(key_texts),
        complete_structs=uses.complete_structs(schema),
    )


def _first_texts(file: Path, sampled: Path, names: Sequence[str], reading: ReadOptions) -> dict[str, pa.Array]:
    """Return columns of the first rows of ``sampled``, as `first_texts` does. ``sampled`` is ``file`` itself, or a
    sample of it; error messages contain the name of ``file``. Raise ``ValueError`` if a value in a JSON file is not
    text.
    """
    try:
        return first_texts(sampled, names, reading)
    except pa.ArrowInvalid as error:
        kinds = dict.fromkeys(names, pa.string())
        raise _reading_error(file, error, partial(find_wrong_value, file, kinds, reading)) from None


def _unify_schemas(schema: pa.Schema, other: pa.Schema, uses: ColumnUses) -> pa.Schema:
    """Return the common schema of two files. If a measure or key uses a column that is text in one file and numbers or
    booleans in the other, the column is text.
    """
    by_column = uses.among(tuple(schema.names))
    for name in by_column.keys() & set(other.names):
        kinds = {schema.field(name).type, other.field(name).type}
        if pa.string() in kinds and all(kind == pa.string() or is_number_or_boolean(kind) for kind in kinds):
            schema = schema.set(schema.get_field_index(name), pa.field(name, pa.string()))
            other = other.set(other.get_field_index(name), pa.field(name, pa.string()))
    return pa.unify_schemas([schema, other], promote_options="permissive")


def _columns_to_examine(
    file: Path, file_schema: pa.Schema, schema: pa.Schema, uses: Uses, reading: ReadOptions
) -> list[str]:
    """Return the names of the columns of a file whose texts must be examined before their type is chosen.

    In files of all formats, a text column is examined if functions read it as numbers. In CSV, a column of inferred
    numbers or booleans is examined too if a function uses its texts, or if its texts must be preserved.
    """
    names = []
    for name in [name for name in uses if name in file_schema.names]:
        kind = schema.field(name).type
        column_uses = uses[name]
        is_guessed = is_number_or_boolean(kind) and kind_of(file) in ("csv", "tsv") and name not in reading.declared
        if (is_guessed and column_uses & {Use.TEXT, Use.KEEP}) or (
            pa.types.is_string(kind) and needs_numbers(column_uses, name in reading.declared)
        ):
            names.append(name)
    return names


def _with_texts(
    schema: pa.Schema, samples: Mapping[Path, Mapping[str, pa.Array]], uses: Uses, reading: ReadOptions
) -> pa.Schema:
    """Return ``schema`` with the type text for some columns: those whose inferred type is a number or a boolean, and
    for which `stays_text` returns true. ``samples`` has the first texts of columns, as file → column → texts.
    """
    for name in dict.fromkeys(name for sample in samples.values() for name in sample):
        at = schema.get_field_index(name)
        kind = schema.field(at).type
        parts = [sample[name] for sample in samples.values() if name in sample]
        if is_number_or_boolean(kind) and stays_text(parts, kind, uses[name], reading):
            schema = schema.set(at, pa.field(name, pa.string()))
    return schema


def _find_files(path: Path) -> list[Path]:
    """Return the file at a path or, if the path is a folder, all files of known formats in it. Raise an error if the
    path does not exist, if the format of the file is unknown, or if the folder has no such files.
    """
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}; correct the path")
    if path.is_file():
        if kind_of(path) is None:
            excel = (
                "; read Excel's sheets with pandas.read_excel, or save them as CSV" if _EXCEL.search(path.name) else ""
            )
            raise ValueError(
                f"cannot determine the format of {path} from its name; use one of the endings {known_endings()}{excel}"
            )
        return [path]
    if not path.is_dir():
        raise ValueError(f"{path} is neither a file nor a folder; write its content to a file first")
    files = list(files_below(path))
    if not files:
        raise ValueError(
            f"the folder {path} has no data: none of its files has one of the endings {known_endings()}; name a folder "
            "with such files"
        )
    return files


def files_below(folder: Path, parents: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Yield the files of known formats in a folder and its subfolders, in the order of their names. Links are followed.
    ``parents`` has the folders that contain ``folder``. If a link leads back to such a folder, this folder is not
    listed again.
    """
    real_folder = folder.resolve()
    if real_folder in parents or is_store(folder):
        return
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        path = folder / entry.name
        if entry.name[0] in "._":
            continue
        if entry.is_dir():
            yield from files_below(path, (*parents, real_folder))
        elif kind_of(path) is not None:
            if not path.exists():
                raise ValueError(f"{path} is a link to a missing file; restore that file, or remove the link")
            if not path.is_file():
                raise ValueError(f"{path} is not a regular file; leave it out, or write its content to a file first")
            yield path


def _without_unread_duplicates(file: Path, file_schema: pa.Schema, read: set[str]) -> pa.Schema:
    """Return the schema of a file without the columns whose names occur twice. Raise ``ValueError`` if such a name is
    in ``read``, the names of the needed columns.
    """
    twice = {name for name in file_schema.names if file_schema.names.count(name) > 1}
    for name in file_schema.names:
        if name in twice & read:
            raise ValueError(f"{file} has two columns called {name!r}; rename one of them")
    return pa.schema([field for field in file_schema if field.name not in twice])


def _schema_to_read(file: Path, file_schema: pa.Schema, time: str, uses: ColumnUses, reading: ReadOptions) -> pa.Schema:
    """Return the schema in which the columns of a file are read. A column has its declared type or, without a declared
    type, its type in ``file_schema``, the schema of the file. Event times are instants in microseconds UTC, unless they
    are integers without a declared unit or format.
    """
    file_schema = _without_unread_duplicates(
        file, file_schema, {time, *uses.among(tuple(file_schema.names)), *reading.reads()}
    )
    time_columns = () if reading.time is None else columns_in(reading.time, file_schema.names)
    fields = []
    for name, file_type in zip(file_schema.names, file_schema.types, strict=True):
        kind = file_type if pa.types.is_null(file_type) else normalized_type(file_type)
        if pa.types.is_binary(kind) and not has_types(file):
            _check_text_file(file, reading)
        declared_kind = reading.declared.get(name)
        kind = kind if declared_kind is not None else reading.type_of(name, kind)
        if reading.time is None and name == time:
            is_text_time = _is_text(declared_kind) or pa.types.is_string(kind) or pa.types.is_temporal(kind)
            if reading.unit(time) or reading.time_format is not None or is_text_time:
                kind = INSTANT
            elif pa.types.is_floating(kind):
                raise ValueError(
                    f"{file}: the time column {time!r} contains numbers with fractions; declare their unit, counted "
                    "from 1970: "
                    f"{reading.type_option_text(time, 'seconds')}, or milliseconds, microseconds or nanoseconds"
                )
        elif declared_kind is not None:
            kind = reading.type_of(name, kind) if pa.types.is_list(kind) else declared_kind
        elif name in time_columns and not has_types(file) and pa.types.is_temporal(kind):
            kind = pa.string()  # The expression for the event times reads this column as text.
        fields.append(pa.field(name, kind))
    return pa.schema(fields)


def _is_text(kind: pa.DataType | None) -> bool:
    """Return whether event times with the declared type ``kind`` are read as text, and not as integers. Return False if
    ``kind`` equals None, because no type was declared.
    """
    return kind is not None and not pa.types.is_integer(kind)


def _check_text_file(file: Path, reading: ReadOptions) -> None:
    if not has_types(file):
        # These errors are ignored here, because they occur again when the file is read.
        with suppress(OSError, pa.ArrowException):
            check_text(file, reading.encoding, delimiter_of(file, reading))


def _accepts_numbers(check: Callable[[pa.Schema], None], schema: pa.Schema, place: int) -> bool:
    """Return whether ``check`` accepts the schema after the type of the text column at the index ``place`` is replaced
    by float64.
    """
    try:
        check(schema.set(place, schema.field(place).with_type(pa.float64())))
    except (TypeError, ValueError):
        return False
    return True


def _reading_error(file: Path, error: Exception, find_cause: Callable[[], ValueError | None]) -> ValueError:
    """Return the error for a file that cannot be read. ``find_cause`` is a function that returns an error which names
    the wrong value, or None. If ``find_cause`` returns None, the returned error has the message of ``error``.
    """
    with suppress(pa.ArrowException, OSError, UnicodeError):
        if not has_types(file) and isinstance(error, pa.ArrowInvalid) and (explanation := find_cause()):
            return explanation
    return ValueError(f"cannot read {file}: {_first_line(error)}{_advice(error)}")


def _advice(error: Exception) -> str:
    """Return the advice at the end of the message about ``error``, which was raised while a file was read. Return
    ``""`` if the data is not the cause of the error, as for errors of the operating system.
    """
    if not isinstance(error, pa.ArrowInvalid | UnicodeError):
        return ""
    if not re.search(r"CSV parse error: (Row #\d+: )?Expected \d+ columns", str(error)):
        return "; correct the data"
    option = parameter_text("bad_rows")
    return "; correct the line" + (f", or leave such lines out by {option} skip" if option.startswith("--") else "")


def _first_line(error: Exception) -> str:
    return re.sub(r"^Error creating dataset.*?\?: ", "", str(error).splitlines()[0]).rstrip(". ")


def _hint(error: Exception, reading: ReadOptions) -> str:
    type_messages = (
        "conversion error to",
        "changed from",
        "incompatible types",
        "Failed to parse",
        "would cause data loss",
    )
    hint = (
        f"; declare the type of a column with {reading.type_option_text('COL', 'TYPE')}, or "
        f"{reading.type_option_text('COL', 'text')}"
    )
    return hint if any(message in str(error) for message in type_messages) else ""
