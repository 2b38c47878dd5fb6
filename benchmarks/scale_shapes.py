"""Days whose rows are distributed unevenly: one key with half of the rows, a million keys, or an hour with a tenth of
the rows.

python -m benchmarks.scale_shapes [--days 1] [--rows-per-day 10000000] [--master local[2]] [--out FILE]

Each shape is rolled up twice from files into a store in its own session, and the second run is reported. Time is the
CPU time of all processes together. The store must count every row once.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from aggr.bench.timing import circumstances
from benchmarks.scale import FRAME, KEYS, roll_up, write_hours
from tiltframe import FrameStore, TiltFrame

BUSY_HOUR = 12  # the hour of the day that has more rows


@dataclass(frozen=True)
class Shape:
    """The distribution of a day's rows over keys and hours.

    Parameters
    ----------
    keys : the number of keys
    first_key_share : the fraction of all rows that get the first key; the other rows get random keys
    busy_hour_share : the fraction of a day's rows in hour `BUSY_HOUR`; None for equal hours
    levels : the levels of the frame
    """

    keys: int = KEYS
    first_key_share: float = 0.0
    busy_hour_share: float | None = None
    levels: tuple[str, ...] = ("1m", "10m", "1h", "1d")

    @property
    def frame(self) -> TiltFrame:
        """The frame that rolls up the rows."""
        return TiltFrame(self.levels, FRAME.time, FRAME.measures, FRAME.keys)

    def rows_by_hour(self, days: int, rows_per_day: int) -> list[int]:
        """Return the number of rows of each hour of ``days`` days."""
        busy_rows = rows_per_day // 24 if self.busy_hour_share is None else int(rows_per_day * self.busy_hour_share)
        return [busy_rows if hour == BUSY_HOUR else (rows_per_day - busy_rows) // 23 for hour in range(24)] * days

    def write(self, folder: Path, days: int, rows_per_day: int) -> int:
        """Write one Parquet file per hour, and return the number of rows of all files."""
        counts = self.rows_by_hour(days, rows_per_day)
        write_hours(folder, counts, self.keys, self.first_key_share)
        return sum(counts)


SHAPES = {
    "even": Shape(),
    "one key with half of the rows": Shape(first_key_share=0.5),
    "an hour with a tenth of the rows": Shape(busy_hour_share=0.1),
    "even, by the hour": Shape(levels=("1h", "1d")),
    "a million keys, by the hour": Shape(keys=1_000_000, levels=("1h", "1d")),
}


@click.command()
@click.option("--days", default=1, show_default=True, help="The number of days.")
@click.option("--rows-per-day", default=10_000_000, show_default=True, help="The number of rows of a day.")
@click.option("--master", default="local[2]", show_default=True, help="The master URL of Spark.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
def main(days: int, rows_per_day: int, master: str, out: Path | None) -> None:
    """Measure each shape. Raise an error if a row is not counted exactly once."""
    runs: dict[str, dict[str, Any]] = {}
    for name, shape in SHAPES.items():
        with tempfile.TemporaryDirectory() as folder_name:
            folder = Path(folder_name)
            rows = shape.write(folder / "rows", days, rows_per_day)
            run = roll_up(master, folder, folder / "rows", days=days, rounds=2, frame=shape.frame)
            counts = FrameStore(folder / f"store-{days}-1").query("1d", keys=[], measures=["n"])["n"].to_pylist()
        if sum(counts) != rows:
            raise click.ClickException(f"{name}: the store counts {sum(counts):,} rows, and {rows:,} were written")
        runs[name] = {"rows": rows, "core_ns_a_row": run["core_seconds"] / rows * 1e9, **run}
        click.echo(
            f"{name}: {runs[name]['core_ns_a_row']:,.0f} core-ns a row, {run['seconds']:.1f} s, "
            f"peak {run['peak_bytes'] / 1e6:,.0f} MB, {sum(run['states'].values()):,} states"
        )
    if out is not None:
        figures = {**circumstances(("pyspark", "pyarrow")), "rows_per_day": rows_per_day, "days": days}
        out.write_text(json.dumps({**figures, "master": master, "shapes": runs}, indent=1))


if __name__ == "__main__":
    main()
