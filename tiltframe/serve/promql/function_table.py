"""The functions, aggregations and operators of PromQL. Each of them is evaluated by this server from merged states, is
evaluated from values, or is rejected.

A Prometheus server can compute the functions, aggregations and operators that are rejected here. For this, Prometheus
reads the samples of series from this server by remote read.

Source: ``promql/parser/functions.go`` and ``promql/parser/lex.go`` of prometheus/prometheus.
"""

from __future__ import annotations

from collections.abc import Mapping

import promql_parser

from tiltframe.serve.errors import Unanswerable
from tiltframe.serve.promql.kinds import MERGES
from tiltframe.serve.promql.value_functions import VALUE_FUNCTIONS

MERGE = "the merged states of a range"
HISTOGRAM_READING = "the merged states of a histogram"
VALUES = "the values at each moment"
REFUSED = ""

REMOTE_READ_ADVICE = "Prometheus computes it through remote read (docs/prometheus.md)"
USE_PROMETHEUS = "send the expression to a Prometheus that reads this server through remote read (docs/prometheus.md)"

_ANSWERED_FUNCTIONS = {
    HISTOGRAM_READING: "histogram_avg histogram_count histogram_fraction histogram_quantile histogram_sum",
    VALUES: "absent absent_over_time",
}
_REFUSED_FUNCTIONS = (
    "abs acos acosh asin asinh atan atanh ceil changes clamp clamp_max clamp_min cos cosh day_of_month day_of_week "
    "day_of_year days_in_month deg delta deriv double_exponential_smoothing end exp first_over_time floor "
    "histogram_quantiles histogram_stddev histogram_stdvar holt_winters hour idelta info integral irate label_join "
    "label_replace ln log10 log2 mad_over_time minute month pi predict_linear present_over_time rad range resets "
    "round scalar sgn sin sinh sort sort_by_label sort_by_label_desc sort_desc sqrt start stddev_over_time "
    "stdvar_over_time step tan tanh time timestamp ts_of_first_over_time ts_of_last_over_time ts_of_max_over_time "
    "ts_of_min_over_time year"
)

FUNCTIONS: Mapping[str, str] = {
    **{name: MERGE for merges in MERGES.values() for name in merges},
    **{name: how for how, names in _ANSWERED_FUNCTIONS.items() for name in names.split()},
    **dict.fromkeys(_REFUSED_FUNCTIONS.split(), REFUSED),
    **dict.fromkeys(VALUE_FUNCTIONS, VALUES),
}
AGGREGATIONS: Mapping[str, str] = {
    **{name: MERGE for merges in MERGES.values() for name in merges.values() if name},
    **dict.fromkeys(("count", "quantile", "topk", "bottomk"), VALUES),
    **dict.fromkeys(("count_values", "group", "limit_ratio", "limitk", "stddev", "stdvar"), REFUSED),
}
OPERATORS: Mapping[str, str] = {
    **dict.fromkeys(("+", "-", "*", "/", "%", "^", "atan2"), VALUES),
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), VALUES),
    **dict.fromkeys(("and", "or", "unless"), VALUES),
    # ``</`` and ``>/`` remove the buckets of a histogram on one side of a value.
    **dict.fromkeys(("</", ">/"), REFUSED),
}


def refusal(part: str) -> Unanswerable:
    """Return the error for a part of an expression that only Prometheus can compute."""
    return Unanswerable(f"{part} cannot be computed by merging windows; {REMOTE_READ_ADVICE}")


def check_supported(table: Mapping[str, str], name: str) -> None:
    """Raise `Unanswerable` if this server does not evaluate ``name``, which is a function, an aggregation or an
    operator in ``table``.
    """
    if table.get(name, REFUSED) == REFUSED:
        raise refusal(name)


def register_older_functions() -> None:
    """Make the parser accept old names of functions that Prometheus has renamed, because dashboards still use them."""
    matrix = promql_parser.ValueType.Matrix
    scalar = promql_parser.ValueType.Scalar
    promql_parser.register_extra_functions(
        [
            promql_parser.Function(
                "holt_winters",
                [matrix, scalar, scalar],
                variadic=0,
                return_type=promql_parser.ValueType.Vector,
                experimental=False,
            )
        ]
    )
