"""Spark's counterparts of the functions of aggr, as expressions in Spark's SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aggr.measure import Measure

_QUANTILES = ("percentile_approx({x}, array({q}))",)
COUNTERPARTS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("dds", "hdr", "exponential", "exact_quantiles"), _QUANTILES),
    **dict.fromkeys(("approx_count_distinct", "hll"), ("approx_count_distinct({x})",)),
    "count_distinct": ("count(DISTINCT {x})", "approx_count_distinct({x})"),
    "count": ("count({x})",),
    "sum": ("sum({x})",),
    "avg": ("avg({x})",),
    "min": ("min({x})",),
    "max": ("max({x})",),
    "var": ("var_samp({x})",),
    "stdev": ("stddev_samp({x})",),
    "skewness": ("skewness({x})",),
    "mode": ("mode({x})",),
    "corr": ("corr({x}, {other})",),
    "covar": ("covar_samp({x}, {other})",),
    "arg_max": ("max_by({x}, {other})",),
    "arg_min": ("min_by({x}, {other})",),
    "collect": ("collect_list({x})",),
    "collect_set": ("collect_set({x})",),
}


def counterparts(measure: Measure) -> list[str]:
    """Return Spark SQL expressions for the same statistic as a measure, exact or approximate, such as
    ``percentile_approx`` for `aggr.dds`.

    Parameters
    ----------
    measure : Measure
        A measure with a condition or weight has no counterpart, because conditions and weights are not translated.

    Returns
    -------
    list of str
        Empty if the measure has a condition or weight, or if no counterpart of its function is known.

    Examples
    --------
    >>> import aggr
    >>> counterparts(aggr.dds("ms", [0.5, 0.99]))
    ['percentile_approx(ms, array(0.5, 0.99))']
    """
    if measure.where or measure.weight:
        return []
    quantiles = ", ".join(map(repr, getattr(measure.function, "quantiles", ())))
    further_columns = [text for text in measure.others if text is not None]
    placeholders = {
        "x": measure.column or "1",
        "q": quantiles,
        "other": further_columns[0] if further_columns else "",
    }
    return [text.format(**placeholders) for text in COUNTERPARTS.get(measure.function.name, ())]
