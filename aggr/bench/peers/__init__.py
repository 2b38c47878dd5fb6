"""Peers: other packages that compute comparable results, selected by name or as counterparts of built-in functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from aggr.arguments import nearest, shown
from aggr.bench.peers.clickhouse import ClickHouse
from aggr.bench.peers.contract import Peer
from aggr.bench.peers.datasketches import DataSketches
from aggr.bench.peers.ddsketch import DDSketch
from aggr.bench.peers.duckdb import DuckDB
from aggr.bench.peers.hdrhistogram import HdrHistogram
from aggr.bench.peers.numpy import NumPy
from aggr.bench.peers.polars import Polars
from aggr.bench.peers.sketch import SketchPeer
from aggr.entry_points import load_group
from aggr.measure import Measure

_BUILTIN: tuple[type[Peer], ...] = (DuckDB, Polars, ClickHouse, NumPy, DataSketches, DDSketch, HdrHistogram)
_QUANTILES = (
    "duckdb:approx_quantile({x}, {q})",
    "duckdb:quantile_cont({x}, {q})",
    "clickhouse:quantilesTDigest({fractions})({x})",
    "datasketches:kll",
    "datasketches:tdigest",
    "ddsketch:ddsketch",
    "hdrhistogram:hdrhistogram",
)
_DISTINCT = (
    "duckdb:approx_count_distinct({x})",
    "duckdb:count(DISTINCT {x})",
    "clickhouse:uniq({x})",
    "datasketches:theta",
    "datasketches:hll",
)
COUNTERPARTS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("dds", "hdr", "exponential", "exact_quantiles"), _QUANTILES),
    **dict.fromkeys(("approx_count_distinct", "hll", "count_distinct"), _DISTINCT),
    "count": ("duckdb:count({x})", "polars:count({x})", "clickhouse:count({x})"),
    "sum": ("duckdb:sum({x})", "polars:sum({x})", "clickhouse:sum({x})"),
    "avg": ("duckdb:avg({x})", "polars:avg({x})", "clickhouse:avg({x})"),
    "min": ("duckdb:min({x})", "polars:min({x})", "clickhouse:min({x})"),
    "max": ("duckdb:max({x})", "polars:max({x})", "clickhouse:max({x})"),
    "var": ("duckdb:var_samp({x})", "polars:variance({x})", "clickhouse:varSamp({x})"),
    "stdev": ("duckdb:stddev_samp({x})", "polars:stddev({x})", "clickhouse:stddevSamp({x})"),
    "mode": ("duckdb:mode({x})",),
    "corr": ("duckdb:corr({x}, {other})",),
    "skewness": ("duckdb:skewness({x})",),
}


def read_peer(text: str, measure: Measure) -> Peer:
    """Read a peer from text.

    Parameters
    ----------
    text : str
        A text ``NAME:EXPRESSION``, such as ``duckdb:quantile_cont(x, 0.5)`` or ``datasketches:kll(k=400)``.
    measure : Measure
        The measure with which the peer is compared.

    Returns
    -------
    Peer

    Raises
    ------
    ValueError
        If the name is unknown, the package is not installed, or the expression is empty.
    """
    name, colon, expression = text.partition(":")
    kinds = _kinds()
    if not colon or not expression.strip():
        raise ValueError(
            f"cannot read {shown(text)} as a peer; write NAME:EXPRESSION, such as duckdb:quantile_cont(x, 0.5)"
        )
    if name not in kinds:
        raise ValueError(f"unknown peer {shown(name)}; {nearest(name, kinds)}")
    if not kinds[name].is_installed():
        raise ValueError(f"the peer {name} needs the package {kinds[name].package}: pip install 'tiltframe[bench]'")
    return kinds[name](expression.strip(), measure)


def counterparts(measure: Measure) -> list[Peer]:
    """List the installed peers that compute the same result as a built-in function.

    Parameters
    ----------
    measure : Measure
        A measure whose input is a column, not an expression, and which has neither a condition nor a weight. Conditions
        and weights are not translated into the languages of other packages.

    Returns
    -------
    list of Peer
        Empty for other measures, and for functions without a known counterpart.
    """
    if measure.column is None or not measure.column.isidentifier() or measure.where or measure.weight:
        return []
    quantiles = list(getattr(measure.function, "quantiles", ()))
    further_columns = [text for text in measure.others if text is not None]
    words = {
        "x": measure.column,
        "q": quantiles,
        "fractions": ", ".join(map(str, quantiles)),
        "other": further_columns[0] if further_columns else "",
    }
    texts = [text.format(**words) for text in COUNTERPARTS.get(measure.function.name, ())]
    return [read_peer(text, measure) for text in installed(texts)]


def installed(peers: Iterable[str]) -> list[str]:
    """List the peers whose packages are installed.

    Parameters
    ----------
    peers : iterable of str
        Peers as text, such as ``duckdb:avg(x)``.

    Returns
    -------
    list of str

    Examples
    --------
    >>> installed(["numpy:sum(x)"])
    ['numpy:sum(x)']
    """
    kinds = _kinds()
    return [text for text in peers if kinds[text.partition(":")[0]].is_installed()]


@cache
def _kinds() -> dict[str, type[Peer]]:
    """Return the kinds of peers by name, including those that other packages register by entry points in the group
    ``aggr.bench.peers``.
    """
    kinds = {kind.name: kind for kind in _BUILTIN}

    def register(kind: type[Peer]) -> None:
        kinds.setdefault(kind.name, kind)

    load_group("aggr.bench.peers", "peer", register)
    return kinds


__all__ = ["COUNTERPARTS", "Peer", "SketchPeer", "counterparts", "installed", "read_peer"]
