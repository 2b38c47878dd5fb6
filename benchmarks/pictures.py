"""Draw the plots of the documentation as SVG files, each from a JSON file of figures.

python -m benchmarks.pictures [--results DIR]
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.peer_plots import draw_accuracy, draw_bytes, draw_functions, draw_reduce
from benchmarks.plots import SMALL_PRINT_COLOUR, STYLE
from benchmarks.spark_plots import draw_answers, draw_growth, draw_jobs, draw_streams
from benchmarks.store_plots import draw_querying, draw_scale, draw_serving, draw_storing, draw_year

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Picture:
    """A plot: the ``name`` of its SVG file, the JSON file of its ``figures`` in a folder of results, its ``title``, and
    the function that draws it.
    """

    name: str
    figures: str
    title: str
    draw: Callable[[Any], Figure]

    def svg(self, results: Path) -> str:
        """Draw the plot from its figures in the folder ``results``, and return the text of its SVG file."""
        figures = json.loads((results / self.figures).read_text())
        about = figures.get("about", figures)
        versions = [f"{name} {value}" for name, value in about.items() if isinstance(value, str)]
        with mpl.rc_context(STYLE):
            figure = self.draw(figures)
            figure.suptitle(self.title, x=0.01, ha="left", fontweight="bold")
            figure.supxlabel(", ".join(versions[:4]), fontsize=7.5, color=SMALL_PRINT_COLOUR, x=0.01, ha="left")
            text = io.StringIO()
            figure.savefig(text, format="svg", metadata={"Title": self.title, "Date": None, "Creator": None})
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


PICTURES = (
    Picture("answers.svg", "spark_answers.json", "From rows to answers on Spark", draw_answers),
    Picture("spark.svg", "spark.json", "Nine functions on four levels; Spark: the finest windows alone", draw_jobs),
    Picture("growth.svg", "spark.json", "Count, sum and dds by a random key, of files", draw_growth),
    Picture("streams.svg", "spark_streaming.json", "Streams on Spark", draw_streams),
    # The figures of all functions are part of the package, because its catalogue reads them.
    Picture("functions.svg", "../../aggr/bench/measured.json", "The time of a row, by function", draw_functions),
    Picture("reduce.svg", "peers.json", "The time of a row on one core", draw_reduce),
    Picture(
        "accuracy.svg",
        "peers.json",
        "Distance of quantiles from the true ones, worst of several samples",
        draw_accuracy,
    ),
    Picture("bytes.svg", "peers.json", "Bytes of a state of lognormal values", draw_bytes),
    Picture("scale.svg", "scale.json", "Costs of a day of ten million rows", draw_scale),
    Picture("serve.svg", "serve.json", "Panels of a dashboard over HTTP", draw_serving),
    Picture("storing.svg", "storing.json", "Rows of a day written at four levels", draw_storing),
    Picture("querying.svg", "querying.json", "Queries of a year and of a day", draw_querying),
    Picture("year.svg", "year.json", "Queries of minutes of 1,000 keys", draw_year),
)


def write_pictures(results: Path) -> list[Path]:
    """Draw the plots whose files of figures exist, write them to the folder ``results``, and return their paths."""
    available_pictures = [picture for picture in PICTURES if (results / picture.figures).exists()]
    for picture in available_pictures:
        (results / picture.name).write_text(picture.svg(results))
    return [results / picture.name for picture in available_pictures]


@click.command()
@click.option(
    "--results",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=RESULTS,
    help="The folder of the figures; by default benchmarks/results.",
)
def main(results: Path) -> None:
    """Draw the plots whose files of figures exist, and print their paths."""
    for file in write_pictures(results):
        click.echo(file)


if __name__ == "__main__":
    main()
