"""Relative errors of the quantiles 0.5 to 0.9999 of each sketch, for values of three distributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks import checks, engines, samples, sketches
from benchmarks.costs import heading, show
from benchmarks.samples import DISTRIBUTIONS, EXTREME_QUANTILES, Floats
from benchmarks.sketches import Promise

SAMPLES = 3  # the number of samples per distribution; the errors of a single sample may be small by chance


@dataclass(frozen=True)
class Errors:
    """The largest relative error of a sketch over all samples of a distribution, for each of `EXTREME_QUANTILES`.

    The first two attributes are the names of the sketch and of its library.
    """

    what: str
    who: str
    distribution: str
    errors: tuple[float, ...]


def accuracy(rows: int) -> list[Errors]:
    """Return the largest relative errors of each sketch for ``rows`` values of each distribution. Raise
    ``AssertionError`` if a sketch exceeds its promised error.
    """
    errors_by_case = []
    for distribution in DISTRIBUTIONS:
        errors_by_sample = [_errors(samples.draw(distribution, rows, seed=11 + i)) for i in range(SAMPLES)]
        for what, who in errors_by_sample[0]:
            worst = tuple(
                max(errors) for errors in zip(*(sample[what, who] for sample in errors_by_sample), strict=True)
            )
            errors_by_case.append(Errors(what, who, distribution, worst))
    return errors_by_case


def _errors(values: Floats) -> dict[tuple[str, str], list[float]]:
    """Return the relative errors of each sketch for one sample, one error per quantile. The keys are pairs of the name
    of a sketch and the name of its library.
    """
    ordered = np.sort(values)
    true = samples.true_quantiles(ordered, EXTREME_QUANTILES)
    estimates: dict[tuple[str, str], tuple[Promise, list[float]]] = {}
    for sketch in (sketches.dds(), sketches.hdr(), *sketches.other_sketches()):
        answer = sketch.quantiles(sketch.build(values), EXTREME_QUANTILES)
        estimates[sketch.name, sketch.package] = sketch.promise, answer
    table = pa.table({"g": np.zeros(len(values), np.int64), "x": values})
    for engine in engines.engines(table, EXTREME_QUANTILES):
        for name, promise in engine.sketches.items():
            estimates[name, engine.name] = promise, engines.answers(engine.ask(name, grouped=False))[0]
    for (what, who), (promise, answer) in estimates.items():
        checks.promised(f"{what} of {who}", promise, answer, ordered, quantiles=EXTREME_QUANTILES)
    return {way: samples.relative_errors(answer, true) for way, (_, answer) in estimates.items()}


def show_accuracy(accuracies: Sequence[Errors], rows: int) -> None:
    """Print the worst error of each sketch and quantile over all distributions."""
    columns = ["", "by", *(f"q = {q}" for q in EXTREME_QUANTILES)]
    table = heading(f"Worst relative error over {', '.join(DISTRIBUTIONS)}; {SAMPLES} × {rows:,} rows each", columns)
    for what, who in dict.fromkeys((e.what, e.who) for e in accuracies):
        errors_of_sketch = [e.errors for e in accuracies if (e.what, e.who) == (what, who)]
        worst = [max(errors) for errors in zip(*errors_of_sketch, strict=True)]
        table.add_row(what, who, *("exact" if w == 0 else f"{w:.2%}" for w in worst), style="bold" * (what == "dds"))
    show(table)
