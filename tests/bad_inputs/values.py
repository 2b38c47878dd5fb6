"""Wrong values by the type of an argument: values in the place of text, a name, a number, a time or a list."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

HUGE = 10**30
LONE = "\udcff"  # half of a surrogate pair: what Python makes of a byte that is no UTF-8


class Thing:
    """A type of nobody's."""


def not_text(*but: str) -> dict[str, Any]:
    """Give values that are no text; ``but`` leaves out those that are allowed in some place."""
    values = {
        "none": None,
        "int": 5,
        "true": True,
        "float": 1.5,
        "nan": math.nan,
        "bytes": b"1m",
        "list": ["1m"],
        "dict": {"a": 1},
        "set": {"1m"},
        "generator": (text for text in ["1m"]),
        "thing": Thing(),
        "class": Thing,
        "array": np.array(["1m", "1h"]),
        "arrow": pa.array(["1m"]),
        "function": len,
    }
    return {label: value for label, value in values.items() if label not in but}


def nameless() -> dict[str, str]:
    """Give text that can name nothing."""
    return {label: text for label, text in bad_words().items() if label not in ("unknown", "long")}


def bad_words() -> dict[str, str]:
    """Give text that names nothing."""
    return {
        "empty": "",
        "blank": " ",
        "tab": "\t\n",
        "nul": "a\0b",
        "surrogate": "a" + LONE,
        "unknown": "never heard of",
        "long": "x" * 10_000,
    }


def not_names() -> dict[str, Any]:
    """Give what is no list of names."""
    return {
        "int": 5,
        "true": True,
        "float": 1.5,
        "text": "host",
        "bytes": b"host",
        "set": {"host"},
        "dict": {"host": 1},
        "thing": Thing(),
        "class": Thing,
        "numbers": [1],
        "nested": [["host"]],
        "nothing in it": [None],
        "bytes in it": [b"host"],
        "empty text": [""],
        "blank": [" "],
        "nul": ["a\0b"],
        "surrogate": ["a" + LONE],
        "twice": ["host", "host"],
    }


def not_whole(*but: str) -> dict[str, Any]:
    """Give values that are not whole numbers of at least 0."""
    values = {
        "none": None,
        "true": True,
        "negative": -1,
        "float": 1.5,
        "whole float": 1.0,
        "nan": math.nan,
        "infinite": math.inf,
        "text": "5",
        "wide digits": "５",
        "bytes": b"5",
        "list": [5],
        "huge": -HUGE,
        "decimal": Decimal(5),
        "numpy bool": np.True_,
        "thing": Thing(),
        "array": np.array([1, 2]),
    }
    return {label: value for label, value in values.items() if label not in but}


def not_moments() -> dict[str, Any]:
    """Give values that are no time."""
    return {
        "true": True,
        "float": 1.5,
        "nan": math.nan,
        "infinite": math.inf,
        "huge": HUGE,
        "negative": -HUGE,
        "thousands of digits": "1" * 5000,
        "empty": "",
        "blank": " ",
        "nul": "2024\0",
        "surrogate": LONE,
        "word": "yesterday",
        "wide digits": "２０２４-05-01",
        "arabic digits": "٢٠٢٤-٠٥-٠١",
        "month 13": "2024-13-01",
        "30 February": "2024-02-30",
        "hour 25": "2024-05-01T25:00",
        "wide offset": "2024-05-01T00:00+99:00",
        "bytes": b"2024-05-01",
        "list": ["2024-05-01"],
        "dict": {"a": 1},
        "set": {1},
        "thing": Thing(),
        "class": dt.datetime,
        "not a time": np.datetime64("NaT"),
        "time of day": dt.time(1),
        "duration": dt.timedelta(1),
        "decimal": Decimal(5),
        "array": np.array([1, 2]),
        "year 1": dt.datetime(1, 1, 1),
        "year 9999": "9999-06-01",
    }


def not_times() -> dict[str, Any]:
    """Give what is no array of instants."""
    return {
        "none": None,
        "int": 5,
        "list": [1, 2],
        "text": "2024",
        "float array": np.array([1.5]),
        "nan array": np.array([math.nan]),
        "bool array": np.array([True]),
        "text array": np.array(["a"]),
        "int32 array": np.array([1], np.int32),
        "object array": np.array([None]),
        "moments": np.array(["2024-05-01"], "datetime64[us]"),
        "arrow": pa.array([1]),
        "thing": Thing(),
    }


def not_tables(*but: str) -> dict[str, Any]:
    """Give what is no table."""
    values = {
        "none": None,
        "int": 5,
        "text": "table",
        "bytes": b"table",
        "list": [{"ts": 1}],
        "dict": {"ts": [1]},
        "arrow": pa.array([1]),
        "schema": pa.schema([("ts", pa.int64())]),
        "thing": Thing(),
        "class": pa.Table,
        "generator": (i for i in range(3)),
        "no columns": pa.table({}),
        "other columns": pa.table({"a": [1]}),
    }
    return {label: value for label, value in values.items() if label not in but}
