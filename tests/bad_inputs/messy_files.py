"""Messy files: each kind of file in each condition in which it cannot be read, and the commands that read it."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

NAMES = ("ts", "host", "bytes", "ms")
ROWS = [
    {"ts": f"2024-05-01T10:{n // 60:02}:{n % 60:02}Z", "host": "ab"[n % 2], "bytes": 10 * n, "ms": n + 0.5}
    for n in range(300)
]
BAD_VALUES = {  # what stands in one row, and cannot be what its column is
    "ts": ["soon", "", "2024-13-01T00:00:00Z", "2024-05-01T25:00:00Z", "99999-01-01", "1e400", "true", "٢٠٢٤-05-01"],
    "bytes": ["many", "1_0", "1;0", "--1", "10 GB", "9" * 30, "１０", "true", "2024-05-01"],
    "ms": ["slow", "1.5.2", "1,5ms", "12:30", "½", "1e", "0x1p3", "yes"],
}
JSON_VALUES = {
    "ts": ["[]", "{}", "true", "1.5e400", '"soon"', "null", "[1]", '{"t": 1}'],
    "bytes": ['"many"', "[1]", "{}", "true", "9" * 30, "0x10", "+1", "01", "1.", "'1'"],
    "ms": ['"slow"', "[1.5]", '{"a": 1.5}', "false", "nan", "1.5.2", "--1", "undefined"],
    "host": ["5", "[]", "{}", "true", "1.5", "a"],
}
CUTS = (0.02, 0.3, 0.5, 0.9, 0.999)


def csv_text(sign: str = ",", rows: list[dict] = ROWS, names: tuple[str, ...] = NAMES) -> str:
    """Write rows as CSV."""
    lines = [sign.join(names), *(sign.join(str(row[name]) for name in names) for row in rows)]
    return "\n".join(lines) + "\n"


def json_text(rows: list[dict] = ROWS) -> str:
    """Write rows as JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def parquet_bytes(table: pa.Table) -> bytes:
    """Write a Parquet file."""
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def arrow_bytes(table: pa.Table, feather: bool = False) -> bytes:
    """Write an Arrow file."""
    file = io.BytesIO()
    if feather:
        pyarrow.feather.write_feather(table, file)
    else:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    return file.getvalue()


def in_the_middle(text: str, line: str) -> str:
    """Put a line among others."""
    lines = text.splitlines(keepends=True)
    return "".join([*lines[:150], line + "\n", *lines[150:]])


def encodings(text: str) -> Iterator[tuple[str, bytes]]:
    """Write text in encodings that nobody has named."""
    for name in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"):
        yield name, text.encode(name)
    for name, letter in {"latin-1": b"\xe9", "cp1252": b"\x80", "shift-jis": b"\x93\xfa", "half": b"\xe2\x82"}.items():
        yield f"a letter of {name}", text.replace("b", "\0").encode().replace(b"\0", letter)
    yield "EBCDIC", text.encode("cp037")


def csv_files(ending: str, sign: str) -> Iterator[tuple[str, str, bytes]]:
    """Spoil CSV."""
    text = csv_text(sign)
    for name, data in encodings(text):
        yield f"in {name}", ending, data
    for column, values in BAD_VALUES.items():
        for value in values:
            row = {**ROWS[0], column: value}
            yield f"{value} as {column}", ending, in_the_middle(text, csv_text(sign, [row]).splitlines()[1]).encode()
    lines = {
        "a field too many": sign.join("abcde"),
        "a field too few": "a",
        "an open quote": sign.join(['2024-05-01T10:00:00Z', '"a', "1", "1.5"]),
        "a second header": sign.join(NAMES),
        "a comment": "# noon",
        "a total": sign.join(["total", "", "300", ""]),
    }  # fmt: skip
    for name, line in lines.items():
        yield name, ending, in_the_middle(text, line).encode()
    for name in NAMES:
        yield f"without {name}", ending, csv_text(sign, names=tuple(n for n in NAMES if n != name)).encode()
        yield f"{name} twice", ending, csv_text(sign, names=(*NAMES, name)).encode()
        yield f"{name} in capitals", ending, text.replace(name, name.upper(), 1).encode()
    yield "without a header", ending, text.partition("\n")[2].encode()
    yield "another sign", ending, csv_text("|").encode()
    yield "a title above", ending, f"Report of May\n{text}".encode()
    yield "JSON in it", ending, json_text().encode()
    yield "a page in it", ending, b"<!DOCTYPE html><html><body>404 Not Found</body></html>\n"


def json_files(ending: str) -> Iterator[tuple[str, str, bytes]]:
    """Spoil JSON lines and arrays."""
    text = json_text()
    for name, data in encodings(text):
        yield f"in {name}", ending, data
    for column, values in JSON_VALUES.items():
        for value in values:
            row = json.dumps({**ROWS[0], column: "\0"}).replace('"\\u0000"', value)
            yield f"{value} as {column}", ending, in_the_middle(text, row).encode()
    for line in (
        "5",
        '"x"',
        "[]",
        "[1, 2]",
        "null",
        "true",
        '{"ts":',
        "{} {}",
        "words",
        "{'ts': 1}",
        "{ts: 1}",
        "}",
        "{",
    ):
        yield f"the line {line}", ending, in_the_middle(text, line).encode()
    for name in ("ts", "host", "bytes", "ms"):
        rows = [{key: value for key, value in row.items() if key != name} for row in ROWS]
        yield f"without {name}", ending, json_text(rows).encode()
    array = json.dumps(ROWS)
    spoiled = {
        "an open array": array[:-1], "an array, and more": array + "x", "two arrays": array * 2, "an array of numbers": "[1, 2]",
        "an array of arrays": f"[{array}]", "an array of one that is none": array[:-1] + ", 5]",
        "an object of it all": json.dumps({"rows": ROWS}),
        "CSV in it": csv_text(), "a page in it": "<html></html>\n", "commas between": text.replace("\n", ",\n"),
    }  # fmt: skip
    for name, data in spoiled.items():
        yield name, ending, data.encode()
    for cut in CUTS:
        yield f"cut at {cut}", ending, text[: text.index("}", int(len(text) * cut))].encode()


def binary_files() -> Iterator[tuple[str, str, bytes]]:
    """Spoil Parquet, and give other formats of tables its name, or their own."""
    table = pa.Table.from_pylist(ROWS)
    intact = parquet_bytes(table)
    for cut in CUTS:
        yield f"cut at {cut}", ".parquet", intact[: int(len(intact) * cut)]
    for size in (0, 1, 2**31 - 1, 2**32 - 1, len(intact)):
        yield f"a footer of {size}", ".parquet", intact[:-8] + struct.pack("<I", size) + b"PAR1"
    draws = random.Random(1)
    for at in range(8):
        yield f"noise for a footer, {at}", ".parquet", intact[:-60] + draws.randbytes(52) + intact[-8:]
    for name, data in {
        "CSV": csv_text().encode(), "JSON": json_text().encode(), "Arrow": arrow_bytes(table), "encrypted": intact[:-4] + b"PARE",
        "gzip": gzip.compress(intact), "zip": b"PK\x03\x04" + bytes(200), "ORC": b"ORC" + bytes(200), "magic alone": b"PAR1PAR1",
        "SQLite": b"SQLite format 3\0" + bytes(200), "page": b"<html></html>",
    }.items():  # fmt: skip
        yield f"{name} in it", ".parquet", data
    lists = pa.array([[1]] * len(ROWS))
    for column in NAMES:
        place = table.schema.get_field_index(column)
        yield f"without {column}", ".parquet", parquet_bytes(table.drop_columns([column]))
        yield f"{column} of lists", ".parquet", parquet_bytes(table.set_column(place, column, lists))
        yield f"{column} twice", ".parquet", parquet_bytes(table.append_column(column, table[column]))
    for column in ("ts", "bytes", "ms"):
        place, words = table.schema.get_field_index(column), pa.array(["soon"] * len(ROWS))
        yield f"{column} of words", ".parquet", parquet_bytes(table.set_column(place, column, words))
    yield "times that are null", ".parquet", parquet_bytes(table.set_column(0, "ts", pa.nulls(len(ROWS), pa.string())))
    yield "no rows of no columns", ".parquet", parquet_bytes(pa.table({}))
    for ending in (
        ".arrow",
        ".feather",
        ".ipc",
        ".orc",
        ".avro",
        ".xlsx",
        ".txt",
        "",
        ".parquet.gz",
        ".csv.zip",
        ".csv.7z",
    ):
        yield "the ending", ending, intact
    for ending in (".csv", ".tsv", ".jsonl", ".json"):
        for name, data in {"Parquet": intact, "Arrow": arrow_bytes(table), "Feather": arrow_bytes(table, True)}.items():
            yield f"{name} in it", ending, data
        yield "gzip without its ending", ending, gzip.compress(csv_text().encode())


def compressed_files() -> Iterator[tuple[str, str, bytes]]:
    """Spoil what is compressed."""
    packers: dict[str, Callable[[bytes], bytes]] = {
        ".gz": gzip.compress,
        ".bz2": bz2.compress,
        ".zst": lambda data: _arrow_packed(data, "zstd"),
        ".lz4": lambda data: _arrow_packed(data, "lz4"),
    }
    draws = random.Random(2)
    for ending, text in {".csv": csv_text(), ".jsonl": json_text()}.items():
        for packed, pack in packers.items():
            packed_text = pack(text.encode())
            for cut in CUTS[:-1]:
                yield f"cut at {cut}", ending + packed, packed_text[: max(int(len(packed_text) * cut), 4)]
            middle = len(packed_text) // 2
            yield (
                "noise in it",
                ending + packed,
                packed_text[:middle] + draws.randbytes(40) + packed_text[middle + 40 :],
            )
            yield "not packed", ending + packed, text.encode()
            yield "packed twice", ending + packed, pack(packed_text)
            yield (
                "a bad line",
                ending + packed,
                pack(in_the_middle(text, "{" if ending == ".jsonl" else "x,,,,,").encode()),
            )
            yield "nothing in it", ending + packed, pack(b"")


def _arrow_packed(data: bytes, codec: str) -> bytes:
    stream = pa.BufferOutputStream()
    with pa.CompressedOutputStream(stream, codec) as packed:
        packed.write(data)
    return bytes(stream.getvalue())


def empty_files() -> Iterator[tuple[str, str, bytes]]:
    """Give each kind a file of nothing, of blanks, of zeros, of noise."""
    for ending in (
        ".csv",
        ".tsv",
        ".json",
        ".jsonl",
        ".ndjson",
        ".parquet",
        ".csv.gz",
        ".jsonl.bz2",
        ".csv.zst",
        ".jsonl.lz4",
    ):
        yield "empty", ending, b""
        for name, data in {"a blank": b" ", "lines": b"\n\n\n", "zeros": bytes(500), "a mark": b"\xef\xbb\xbf"}.items():
            yield name, ending, data
        yield "noise", ending, random.Random(3).randbytes(2000)


@dataclass(frozen=True)
class Messy:
    """A file that cannot be read, by what is wrong with it and the ending of its name."""

    wrong: str
    ending: str
    data: bytes

    @property
    def name(self) -> str:
        """What is said of it."""
        return f"{self.ending}: {self.wrong}"


FILES = [
    Messy(*file)
    for files in (
        *(csv_files(ending, sign) for ending, sign in ((".csv", ","), (".tsv", "\t"))),
        *(json_files(ending) for ending in (".json", ".jsonl", ".ndjson")),
        binary_files(),
        compressed_files(),
        empty_files(),
    )
    for file in files
]


def is_refused(command: str, file: Messy) -> bool:
    """Say whether a command refuses a file; some take what is no mistake to them."""
    missing = ("host", "bytes", "ms")
    if command == "rollup of two":  # a column that one of two files has is null in the other; equal bytes count once
        absent = [wrong for name in missing for wrong in (f"without {name}", f"{name} in capitals")]
        return file.wrong not in (*absent, "JSON in it", "a page in it", "no rows of no columns")
    if command.startswith("stream") and "{folder}" in COMMANDS[command]:  # others lie there, or are not written yet
        return file.wrong not in ("the ending", "empty")
    if command == "rollup -":  # a stream has no ending, and tells by its first bytes what it is
        excerpts = ("JSON in it", "CSV in it", "Parquet in it", "the ending", "gzip without its ending", "not packed")
        return file.wrong not in excerpts
    return True


_FRAME = ("--time", "ts", "--key", "host", "--measure", "b=sum(bytes)", "--measure", "m=avg(ms)", "--levels", "1m,1h")
_STORED = ("--store", "{root}/new")
COMMANDS = {  # by what is said of them; {file} is a messy file, {good} a good one, and {folder} has a messy one alone
    "rollup": ("rollup", "{file}", *_FRAME, *_STORED),
    "rollup of two": ("rollup", "{good}", "{file}", *_FRAME, *_STORED),
    "rollup anew": ("rollup", "{file}", *_FRAME, *_STORED, "--replace-within", "2024-05-01,2024-05-02"),
    "rollup into a store": ("rollup", "{file}", *_FRAME, "--store", "{root}/store"),
    "stream": ("stream", "{folder}", *_FRAME, "--once"),
    "stream into a store": ("stream", "{folder}", *_FRAME, "--once", *_STORED),
    "stream in order": ("stream", "{folder}", *_FRAME[:-2], "--ordered", "count(10)", "--once"),
    "rollup -": ("rollup", "-", *_FRAME, *_STORED),
    "query": ("query", "{file}", "--per", "1h"),
    "inspect": ("inspect", "{file}"),
    "check": ("check", "{file}"),
    "compact": ("compact", "{file}"),
    "expire": ("expire", "{file}"),
    "evolve": ("evolve", "{file}", "--levels", "1d"),
    "rollup into a file": ("rollup", "{good}", *_FRAME, "--store", "{file}"),
    "stream into a file": ("stream", "{arriving}", *_FRAME, "--once", "--store", "{file}"),
    "stream with such a state": ("stream", "{arriving}", *_FRAME, "--once", "--state", "{file}"),
}
