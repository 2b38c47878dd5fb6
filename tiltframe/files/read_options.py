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
_ALLOWED = f"{', '.join(_TYPES)}, decimal(digits, fraction); of the time column also {', '.join(_UNITS)}"
# characters that cannot separate fields or groups of digits
_NO_SIGNS = '"\r\n+-0123456789'
# codecs of domain names and Python literals, which are not encodings of files
_NO_FILES = ("idna", "punycode", "raw-unicode-escape", "unicode-escape")


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading files and other inputs, such as types and the notation of numbers. The command line has an
    option for each of them.

    Parameters
    ----------
    types : column -> type
        For CSV and JSON: ``text``, ``int64``, ``uint64``, ``float64``, ``decimal(digits, fraction)``, ``bool``,
        ``date`` or ``timestamp``. For numbers in the time column: ``seconds``, ``milliseconds``, ``microseconds`` or
        ``nanoseconds``; numbers of seconds or milliseconds may have a fraction. Other types are inferred.
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
        the transition. Required for such times if the windows are in another zone than UTC.
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
                raise ValueError(f"null must be a list of texts, such as ['-', 'n/a']; got {shown(text)} in it")
        for name, sign in (("delimiter", self.delimiter), ("thousands", self.thousands)):
            if sign is not None and (
                not isinstance(sign, str) or len(sign) != 1 or sign in _NO_SIGNS or not is_unicode(sign)
            ):
                raise ValueError(
                    f"{name} must be one character other than a quote, a line end, + or -, or a digit; got "
                    f"{shown(sign)}"
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

    def unit(self, time: str) -> str | None:
        """Return the declared unit of numbers in the time column.

        Parameters
        ----------
        time : str

        Returns
        -------
        str or None
            ``s``, ``ms``, ``us`` or ``ns``; None if no unit is declared.
        """
        return _UNITS.get(self.types.get(time, ""))

    def fraction(self, time: str) -> pa.DataType | None:
        """Return float64 if the times are declared as seconds or milliseconds, because JSON numbers in such a unit may
        have a fraction. Otherwise return None.

        Parameters
        ----------
        time : str

        Returns
        -------
        pa.DataType or None
            float64; None if another unit or no unit is declared.
        """
        return pa.float64() if self.unit(time) in ("s", "ms") else None

    def type_of(self, path: str, inferred: pa.DataType) -> pa.DataType:
        """Return the type of a column: the declared one, or the inferred one if none is declared. In a struct, this is
        decided for each field.

        Parameters
        ----------
        path : str
            The name of the column. A field is named after its struct, such as ``http.status``; list elements have the
            name of the list.
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
        of_time = () if self.time is None else possible_columns(self.time)
        of_condition = () if self.where is None else sql.columns_of(self.where)
        return (*of_time, *(name for text in of_condition for name in possible_columns(text)))

    def non_default_options(self) -> list[str]:
        """Return the names of the options that differ from their defaults, with underscores, and otherwise as on the
        command line: ``type`` for ``types``.
        """
        by_default: tuple[object, ...] = ({}, (), "utf-8", None, False, 0)
        names = [field.name for field in fields(self) if getattr(self, field.name) not in by_default]
        return ["type" if name == "types" else name for name in names]

    def check(self, time: str, columns: Iterable[str]) -> None:
        """Check the declared types against the columns of a frame.

        Parameters
        ----------
        time : str
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
            option = self.say(name, kind)
            if sql.column_in(name, read) is None:
                raise ValueError(
                    f"{option}: no key, measure or time uses the column {shown(name)}; leave out this option"
                )
            if kind in _UNITS and name != time:
                raise ValueError(
                    f"{option}: the type {kind} is only for the time column, {time!r}; use int64 for other columns"
                )
            if kind in _UNITS and self.time_format is not None:
                text = self.say_option("time_format", self.time_format)
                raise ValueError(
                    f"{option} declares times as numbers, and {text} declares them as text; pass only one of them"
                )
        of_time = self.declared.get(time)
        if of_time is None or self.time is not None:
            return
        if not (pa.types.is_string(of_time) or pa.types.is_temporal(of_time) or of_time == pa.int64()):
            raise ValueError(
                f"{self.say(time, self.types[time])}: the type of the time column must be text, date, timestamp, int64 "
                f"(Unix milliseconds), or one of {', '.join(_UNITS)}"
            )

    def say(self, name: str, kind: str) -> str:
        """Return, for messages, the option that declares the type of a column, such as ``types={'zip': 'text'}``.

        Parameters
        ----------
        name, kind : str

        Returns
        -------
        str
        """
        return f"types={{{shown(name)}: {shown(kind)}}}"

    def say_times(self, name: str, kind: str) -> str:
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
        return self.say_option("time_format", kind) if kind.startswith("%") else self.say(name, kind)

    def say_option(self, option: str, value: object) -> str:
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
        """Return the Arrow type for the declared type ``kind`` of the column ``name``. Times that are numbers of a unit
        are int64. Raise ``ValueError`` if the declared type is unknown.
        """
        option = self.say(name, kind)
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
    """Return the name of an encoding in Python's `codecs`. Raise ``ValueError`` if the encoding is unknown, or if it
    does not encode text files, such as base64 or unicode-escape.
    """
    try:
        own = codecs.lookup(name).name
        "a".encode(own)  # This raises an error for codecs that do not encode text, such as base64.
    except (LookupError, ValueError, TypeError):
        own = ""
    if not own or own.replace("_", "-") in _NO_FILES:
        raise ValueError(f"unknown encoding {shown(name)}; use an encoding such as utf-8, latin-1 or utf-16")
    return own


NO_OPTIONS = ReadOptions()  # the default of every option
