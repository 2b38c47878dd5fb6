"""Read options: properties that a file does not declare itself, such as the types of its columns and the notation of
its numbers and times. The options also include a condition that selects rows.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

import pyarrow as pa

from aggr import sql
from aggr.arguments import checked_list, checked_mapping, checked_whole, is_unicode, shown
from aggr.sql.inputs import possible_columns
from tiltframe.files.time_format import check_format
from windows import check_timezone

_TYPES = {"text": pa.string(), "int64": pa.int64(), "uint64": pa.uint64(), "float64": pa.float64()}
_TYPES |= {"bool": pa.bool_(), "date": pa.date32(), "timestamp": pa.timestamp("us")}
_UNITS = {"seconds": "s", "milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_ALLOWED = f"{', '.join(_TYPES)}, decimal(digits, fraction); for the time column also {', '.join(_UNITS)}"
# characters that cannot be separators of fields or of groups of digits
_FORBIDDEN_SEPARATORS = '"\r\n+-0123456789'
# codecs of domain names and Python literals, which are not encodings of files
_NON_FILE_CODECS = ("idna", "punycode", "raw-unicode-escape", "unicode-escape")


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading files and other inputs, such as types and the notation of numbers. The command line has an
    option for each of them.

    Parameters
    ----------
    types : column -> type
        For columns of CSV and JSON: ``text``, ``int64``, ``uint64``, ``float64``, ``decimal(digits, fraction)``,
        ``bool``, ``date`` or ``timestamp``. For a time column of numbers, the unit of the numbers: ``seconds``,
        ``milliseconds``, ``microseconds`` or ``nanoseconds``. Numbers of seconds or milliseconds may have a fraction.
        The types of columns that are not listed are inferred.
    encoding : str
        The encoding of CSV and JSON, as Python names it.
    delimiter : str, optional
        The character between the fields of CSV. The default is a comma, or a tab if the file's name ends in ``.tsv``.
    skip_rows : int
        The number of lines above the names of the columns in CSV, such as a title.
    decimal_comma : bool
        Whether numbers in CSV have a decimal comma, ``1,5``.
    thousands : str, optional
        The separator of groups of three digits in CSV: ``.`` in ``1.234,5``.
    null : texts
        Texts that mean null in CSV and JSON, in addition to empty values: ``["-", "n/a"]``.
    time_format : str, optional
        The format of text in the time column, as for `datetime.strptime`: ``%d.%m.%Y %H:%M``. The default is ISO 8601.
    clock : str, optional
        The IANA zone, such as ``Europe/Berlin``, of times without a zone or an offset, in files and in tables. A local
        time that occurs twice is read as the earlier instant. A local time that is skipped is read as the instant of
        the transition. Required for times without a zone or an offset if the windows are in another zone than UTC.
    time : str, optional
        An expression that computes the time column: ``day || 'T' || time_of_day``.
    where : str, optional
        An SQL condition. Only rows for which it is true are read.

    Raises
    ------
    ValueError
        If an option cannot be read, or contradicts another option.

    Examples
    --------
    >>> ReadOptions({"zip": "text"}, delimiter=";", decimal_comma=True).delimiter
    ';'
    """

    types: Mapping[str, str] = field(default_factory=dict)
    encoding: str = "utf-8"
    delimiter: str | None = None
    skip_rows: int = 0
    decimal_comma: bool = False
    thousands: str | None = None
    null: Sequence[str] = ()
    time_format: str | None = None
    clock: str | None = None
    time: str | None = None
    where: str | None = None

    def __post_init__(self) -> None:
        checked_mapping(self.types, "types", "column -> type, such as {'zip': 'text'}")
        object.__setattr__(self, "null", tuple(checked_list(self.null, "null", "texts, such as ['-', 'n/a']")))
        object.__setattr__(self, "encoding", _encoding(self.encoding))
        for text in self.null:
            if not isinstance(text, str):
                raise ValueError(
                    f"the option null must be a list of texts, such as ['-', 'n/a']; got {shown(text)} in the list"
                )
        for name, separator in (("delimiter", self.delimiter), ("thousands", self.thousands)):
            if separator is not None and (
                not isinstance(separator, str)
                or len(separator) != 1
                or separator in _FORBIDDEN_SEPARATORS
                or not is_unicode(separator)
            ):
                raise ValueError(
                    f"{name} must be one character other than a quote, a line end, + or -, or a digit; got "
                    f"{shown(separator)}"
                )
        if self.delimiter is not None and not self.delimiter.isascii():
            raise ValueError(f"delimiter must be one ASCII character; got {shown(self.delimiter)}")
        checked_whole(self.skip_rows, "skip_rows, the number of lines above the names of columns,", 0)
        if self.thousands == self.point:
            raise ValueError(
                f"thousands and fractions cannot both use the separator {self.point!r}; choose another separator for "
                "one of them"
            )
        if self.time_format is not None:
            check_format(self.time_format)
        if self.clock is not None:
            check_timezone(self.clock)
        if self.where is not None:
            sql.check_condition(self.where)
        if self.time is not None:
            sql.columns_of(self.time, "expression")
        assert self.declared is not None

    @property
    def point(self) -> str:
        """The decimal separator, ``.`` or ``,``."""
        return "," if self.decimal_comma else "."

    @property
    def has_number_notation(self) -> bool:
        """Whether the options declare a decimal comma or separators of thousands. Arrow does not read such numbers."""
        return self.decimal_comma or self.thousands is not None

    @cached_property
    def declared(self) -> dict[str, pa.DataType]:
        """The declared types as Arrow types, by column."""
        return {name: self._type(name, kind) for name, kind in self.types.items()}

    def unit(self, time_column: str) -> str | None:
        """Return the declared unit of numbers in the time column.

        Parameters
        ----------
        time_column : str
            The name of the column.

        Returns
        -------
        str or None
            ``s``, ``ms``, ``us`` or ``ns``; None if no unit is declared.
        """
        return _UNITS.get(self.types.get(time_column, ""))

    def fractional_time_type(self, time_column: str) -> pa.DataType | None:
        """Return float64 if the times are declared as seconds or milliseconds, because JSON numbers in such a unit may
        have a fraction. Otherwise return None.

        Parameters
        ----------
        time_column : str
            The name of the column.

        Returns
        -------
        pa.DataType or None
            float64; None if another unit or no unit is declared.
        """
        return pa.float64() if self.unit(time_column) in ("s", "ms") else None

    def type_of(self, path: str, inferred: pa.DataType) -> pa.DataType:
        """Return the type of a column: the declared one, or the inferred one if none is declared. In a struct, this is
        decided for each field.

        Parameters
        ----------
        path : str
            The name of the column. A field has the name of its struct as prefix, such as ``http.status``; list elements
            have the name of the list.
        inferred : pa.DataType

        Returns
        -------
        pa.DataType
        """
        if pa.types.is_list(inferred):
            return pa.list_(self.type_of(path, inferred.value_type))
        if path in self.declared or not pa.types.is_struct(inferred):
            return self.declared.get(path, inferred)
        return pa.struct([f.with_type(self.type_of(f"{path}.{f.name}", f.type)) for f in inferred])

    def reads(self) -> tuple[str, ...]:
        """Return the names of the columns that the options ``time`` and ``where`` may read."""
        time_columns = () if self.time is None else possible_columns(self.time)
        condition_texts = () if self.where is None else sql.columns_of(self.where)
        return (*time_columns, *(name for text in condition_texts for name in possible_columns(text)))

    def non_default_options(self) -> list[str]:
        """Return the names of the options that differ from their defaults. The names are those of the command line,
        with underscores in place of hyphens, such as ``time_format``. The option ``types`` is returned as ``type``.
        """
        defaults: tuple[object, ...] = ({}, (), "utf-8", None, False, 0)
        names = [field.name for field in fields(self) if getattr(self, field.name) not in defaults]
        return ["type" if name == "types" else name for name in names]

    def check(self, time_column: str, columns: Iterable[str]) -> None:
        """Check the declared types against the columns of a frame.

        Parameters
        ----------
        time_column : str
            The name of the time column.
        columns : names
            The columns that a frame may read.

        Raises
        ------
        ValueError
            If a type is declared for a column that is not read, or if the type of the time column cannot represent
            times. The message names the column.
        """
        read = {*columns, *self.reads()}
        for name, kind in self.types.items():
            option = self.type_option_text(name, kind)
            if sql.column_in(name, read) is None:
                raise ValueError(
                    f"{option}: no key, measure or time uses the column {shown(name)}; leave out this option"
                )
            if kind in _UNITS and name != time_column:
                raise ValueError(
                    f"{option}: the type {kind} is only for the time column, {time_column!r}; use int64 for "
                    "other columns"
                )
            if kind in _UNITS and self.time_format is not None:
                text = self.option_text("time_format", self.time_format)
                raise ValueError(
                    f"{option} declares times as numbers, and {text} declares them as text; pass only one of them"
                )
        time_type = self.declared.get(time_column)
        if time_type is None or self.time is not None:
            return
        if not (pa.types.is_string(time_type) or pa.types.is_temporal(time_type) or time_type == pa.int64()):
            raise ValueError(
                f"{self.type_option_text(time_column, self.types[time_column])}: the type of the time column must be "
                f"text, date, timestamp, int64 (Unix milliseconds), or one of {', '.join(_UNITS)}"
            )

    def type_option_text(self, name: str, kind: str) -> str:
        """Return, for messages, the option that declares the type of a column, such as ``types={'zip': 'text'}``.

        Parameters
        ----------
        name, kind : str

        Returns
        -------
        str
        """
        return f"types={{{shown(name)}: {shown(kind)}}}"

    def time_option_text(self, name: str, kind: str) -> str:
        """Return, for messages, the option that declares the unit or the format of the time column.

        Parameters
        ----------
        name : str
        kind : str
            A type, a unit, or a time format, which begins with ``%``.

        Returns
        -------
        str
        """
        return self.option_text("time_format", kind) if kind.startswith("%") else self.type_option_text(name, kind)

    def option_text(self, option: str, value: object) -> str:
        """Return, for messages, the text that sets an option, such as ``delimiter=';'``.

        Parameters
        ----------
        option : str
        value : object

        Returns
        -------
        str
        """
        return f"{option}={value!r}"

    def _type(self, name: str, kind: str) -> pa.DataType:
        """Return the Arrow type for the declared type ``kind`` of the column ``name``. For a unit of time, such as
        ``seconds``, the Arrow type is int64. Raise ``ValueError`` if the declared type is unknown.
        """
        option = self.type_option_text(name, kind)
        decimal = re.fullmatch(r"decimal\(\s*([0-9]{1,2})\s*(?:,\s*([0-9]{1,2})\s*)?\)", str(kind))
        if decimal:
            digits = int(decimal[1])
            fraction = int(decimal[2] or 0)
            if not 1 <= digits <= 38 or fraction > digits:
                raise ValueError(
                    f"{option}: a decimal has 1 to 38 digits, and at most as many after the point; write a type such "
                    "as decimal(18, 2)"
                )
            return pa.decimal128(digits, fraction)
        if kind in _UNITS:
            return pa.int64()
        if kind not in _TYPES:
            raise ValueError(f"{shown(name)}: unknown type {shown(kind)}; the allowed types are {_ALLOWED}")
        return _TYPES[kind]


def _encoding(name: str) -> str:
    """Return the name of an encoding in Python's `codecs`. Raise ``ValueError`` if the encoding is unknown.
    Codecs that are not encodings of text files, such as base64 and unicode-escape, are rejected too.
    """
    try:
        codec_name = codecs.lookup(name).name
        "a".encode(codec_name)  # This raises an error for codecs that do not encode text, such as base64.
    except (LookupError, ValueError, TypeError):
        codec_name = ""
    if not codec_name or codec_name.replace("_", "-") in _NON_FILE_CODECS:
        raise ValueError(f"unknown encoding {shown(name)}; use an encoding such as utf-8, latin-1 or utf-16")
    return codec_name


NO_OPTIONS = ReadOptions()  # the default of every option
