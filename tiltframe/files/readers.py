"""Readers of further file formats. Other distributions add them by entry points of the group ``tiltframe.readers``::

    [project.entry-points."tiltframe.readers"]
    orc = "orc_files:Orc"

>>> from tiltframe.files.readers import FileReader, reader_of, register_reader, unregister_reader
>>> class Lines(FileReader):
...     name, endings = "lines", (".lines",)
...     def schema(self, path): return pa.schema({"line": pa.string()})
...     def batches(self, path, columns):
...         yield pa.RecordBatch.from_pydict({"line": path.read_text().splitlines()})
>>> _ = register_reader(Lines)
>>> reader_of(Path("server.lines")).name
'lines'
>>> unregister_reader("lines")
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from aggr.arguments import shown
from aggr.entry_points import load_group

GROUP = "tiltframe.readers"
BUILT_IN = ("csv", "tsv", "json", "parquet")
_BUILT_IN_ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".pq", ".gz", ".bz2", ".zst", ".lz4")
_READERS: dict[str, FileReader] = {}


class FileReader(ABC):
    """The base class of readers for file formats in which every column has a type, such as ORC or Avro.

    Files of a registered format are accepted wherever Parquet files are: by `tiltframe rollup` and `tiltframe stream`,
    in folders, from standard input with ``--input-format``, and as paths in Python. The types of columns are those of
    the file, and are not inferred.

    What a reader sets
    ------------------
    name : the name of the format, for ``--input-format`` and messages
    endings : the endings of its files, in lower case, such as ``(".orc",)``

    Examples
    --------
    docs/adding-a-format.md has a complete reader of ORC.
    """

    name: ClassVar[str]
    endings: ClassVar[tuple[str, ...]]

    @abstractmethod
    def schema(self, path: Path) -> pa.Schema:
        """Return the names and types of a file's columns, without reading its rows.

        Parameters
        ----------
        path : Path

        Returns
        -------
        pa.Schema
        """

    @abstractmethod
    def batches(self, path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file in their order, each row once.

        Parameters
        ----------
        path : Path
        columns : sequence of str
            The needed columns, which are columns of the schema. Further columns of a batch are ignored.

        Yields
        ------
        pa.RecordBatch
            Batches of any number of rows. Tens of thousands of rows are efficient.
        """


def register_reader(reader: type[FileReader]) -> type[FileReader]:
    """Register a reader, which then reads all files with its endings. Can be used as a class decorator.

    Parameters
    ----------
    reader : subclass of FileReader, which is created without arguments

    Returns
    -------
    The class itself.

    Raises
    ------
    TypeError
        If ``reader`` is not a subclass of `FileReader`, or lacks one of its methods.
    ValueError
        If the name of the reader is not a word, or if its name or one of its endings belongs to another format.
    """
    if not (isinstance(reader, type) and issubclass(reader, FileReader)):
        raise TypeError(f"register_reader takes a subclass of FileReader; got {shown(reader)}")
    if missing := sorted(reader.__abstractmethods__):
        raise TypeError(f"{reader.__name__} does not define {', '.join(missing)}; FileReader describes each method")
    name = getattr(reader, "name", None)
    endings = getattr(reader, "endings", None)
    if not isinstance(name, str) or not name.isidentifier() or name in BUILT_IN:
        raise ValueError(f"a reader's name must be a word other than {', '.join(BUILT_IN)}; got {shown(name)}")
    if not isinstance(endings, tuple) or not endings or not all(map(_is_ending, endings)):
        raise ValueError(f"{name} needs endings such as ('.orc',), in lower case; got {shown(endings)}")
    for other in _READERS.values():
        # Classes are compared by name, because running a cell of a notebook again defines a new class of the same name.
        is_same = (type(other).__module__, type(other).__qualname__) == (reader.__module__, reader.__qualname__)
        if not is_same and (other.name == name or set(other.endings) & set(endings)):
            raise ValueError(
                f"the reader {name!r} has the same name or ending as the registered reader {other.name!r}, which reads "
                f"{', '.join(other.endings)}; remove that reader with unregister_reader({other.name!r})"
            )
    _READERS[name] = reader()
    return reader


def unregister_reader(name: str) -> None:
    """Remove a reader from the registry.

    Parameters
    ----------
    name : str

    Raises
    ------
    KeyError
        If no reader has this name.
    """
    if name not in _READERS:
        raise KeyError(f"there is no reader {shown(name)}; there are {', '.join(_READERS) or 'none'}")
    del _READERS[name]


def reader_of(path: Path) -> FileReader | None:
    """Return the registered reader for the ending of a file's name. Return None if the ending is unknown or belongs to
    a built-in format.
    """
    name = path.name.lower()
    if name.endswith(_BUILT_IN_ENDINGS):
        return None
    _load_plugins()
    return next((reader for reader in _READERS.values() if name.endswith(reader.endings)), None)


def readers() -> dict[str, FileReader]:
    """Return all registered readers by name."""
    _load_plugins()
    return dict(_READERS)


def read_schema(reader: FileReader, path: Path) -> pa.Schema:
    """Return the schema of a file as ``reader`` reads it. Raise ``ValueError`` if the reader raises an error, and
    ``TypeError`` if the reader returns an object that is not a schema.
    """
    try:
        schema = reader.schema(path)
    except Exception as error:  # a reader of another package may raise any error; the message adds the file
        raise ValueError(f"cannot read {path} as {reader.name}: {error}") from error
    if not isinstance(schema, pa.Schema):
        raise TypeError(f"the reader {reader.name!r} must return a pyarrow.Schema; it returned {shown(schema)}")
    return schema


def read_batches(reader: FileReader, path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield batches of a file, with the columns ``columns`` in this order. Raise ``ValueError`` if the reader raises an
    error, or if it yields an object that is not a batch with these columns.
    """
    try:
        for batch in reader.batches(path, columns):
            if not isinstance(batch, pa.RecordBatch):
                raise TypeError(f"the reader must yield record batches; it yielded {shown(batch)}")
            if missing := [name for name in columns if name not in batch.schema.names]:
                raise ValueError(
                    f"a batch of the reader lacks the column {missing[0]!r}, which was requested; the reader must "
                    "yield all requested columns"
                )
            yield batch.select(list(columns))
    except Exception as error:  # a reader of another package may raise any error; the message adds the file
        raise ValueError(f"cannot read {path} as {reader.name}: {error}") from error


def _is_ending(ending: object) -> bool:
    if not isinstance(ending, str) or not ending.startswith(".") or ending != ending.lower() or len(ending) == 1:
        return False
    return not ending.endswith(_BUILT_IN_ENDINGS)


@cache
def _load_plugins() -> None:
    load_group(GROUP, "reader", register_reader)
