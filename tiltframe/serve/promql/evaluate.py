"""Evaluation of a PromQL expression, node by node. Errors name the part that cannot be evaluated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeAlias

import numpy as np
import promql_parser
from promql_parser import AggregateExpr, BinaryExpr, Call, MatrixSelector, ParenExpr, SubqueryExpr, UnaryExpr

from aggr.extend.arguments import quantile_label, shown
from tiltframe.serve.errors import BadData, Unanswerable
from tiltframe.serve.promql.cells import Scalar, States, Vector
from tiltframe.serve.promql.function_table import (
    AGGREGATIONS,
    FUNCTIONS,
    MERGE,
    OPERATORS,
    REMOTE_READ_ADVICE,
    USE_PROMETHEUS,
    check_supported,
)
from tiltframe.serve.promql.functions import (
    HISTOGRAM_FRACTION,
    HISTOGRAM_FUNCTIONS,
    HISTOGRAM_PARTS,
    HISTOGRAM_QUANTILE,
    REDUCTIONS,
    SUBQUERY_FUNCTIONS,
    aggregate_values,
    can_merge_states,
    check_range_function,
    fraction_of,
    merged_range_value,
    part_of,
    quantile,
    quantile_of,
    reduce_steps,
    select_ranked,
    steps_before,
)
from tiltframe.serve.promql.kinds import BUCKETS, HISTOGRAM, LAST, QUANTILE_OVER_TIME
from tiltframe.serve.promql.metrics import ALL, QUANTILE, Grouping, Matcher
from tiltframe.serve.promql.operators import SET_OPERATORS, absent, apply_operator, apply_set_operator
from tiltframe.serve.promql.parse import Expression, duration_text
from tiltframe.serve.promql.select import Evaluation, Selector, select, selector_of
from tiltframe.serve.promql.value_functions import VALUE_FUNCTIONS
from windows import Instants

Value: TypeAlias = "Scalar | States | Vector | str"


def evaluate(node: Expression, evaluation: Evaluation) -> Value:
    """Return the value of an expression at the moments of an evaluation.

    Raise `Unanswerable` if the value cannot be computed by merging states, and `OutOfTime` after the deadline.
    """
    evaluation.check_limits()
    try:
        return _NODES[type(node)](node, evaluation)
    except RecursionError:
        raise BadData(
            f"the expression is nested too deeply; split it into several expressions, or {USE_PROMETHEUS}"
        ) from None


def _numbers(node: Expression, evaluation: Evaluation) -> Scalar | Vector:
    """Return the value of a numeric expression. Raise `Unanswerable` if the value is a string or a histogram."""
    value = evaluate(node, evaluation)
    if isinstance(value, str):
        raise Unanswerable(f"expected numbers; got the string {shown(value)}; use a number or a metric")
    if not isinstance(value, States):
        return value
    if value.kind == HISTOGRAM:
        functions = ", ".join(HISTOGRAM_FUNCTIONS)
        raise Unanswerable(f"expected numbers; got the histogram {_node_text(node)}; apply one of {functions} to it")
    return value.values()


def response_value(value: Value) -> Scalar | States | Vector | str:
    """Return a value in the form of a response: states are converted to numbers, except states of histograms."""
    return value.values() if isinstance(value, States) and value.kind != HISTOGRAM else value


def range_values(node: Expression, evaluation: Evaluation) -> tuple[States | Vector, Instants] | None:
    """Return the values of a range selector or a subquery at one moment, and the time of each value. A store has no
    samples, so a range selector has the values of the windows that end in the range. A subquery has the values of its
    expression at its steps.

    Return None if the expression is not a range.
    """
    node = _without_parentheses(node)
    if isinstance(node, SubqueryExpr):
        vector, steps, _ = _subquery(node, evaluation)
        return vector, steps
    if not isinstance(node, MatrixSelector):
        return None
    range_length = _micros(node.range)
    selector = selector_of(node.vector_selector, None, evaluation)
    if selector is None:
        return Vector.empty(1), evaluation.moments
    last = int(evaluation.moments[0]) - selector.offset
    finest = selector.metric.view.frame.levels[0]
    evaluation.check_limits(cells=int(range_length / finest.length))
    window_ends = finest.ends(finest.starts_between(last - range_length - int(finest.length), last + 1))
    window_ends = window_ends[(window_ends > last - range_length) & (window_ends <= last)]
    if not len(window_ends):
        return Vector.empty(1), evaluation.moments
    at_ends = replace(evaluation, moments=window_ends + selector.offset, lookback=0)
    value = response_value(evaluate(node.vector_selector, at_ends))
    assert isinstance(value, States | Vector)
    return value, window_ends


def _vector_value(node: Expression, evaluation: Evaluation) -> Vector:
    value = _numbers(node, evaluation)
    assert isinstance(value, Vector)  # The parser has checked that the expression is a vector.
    return value


def _constant_value(node: Expression | None, evaluation: Evaluation) -> float:
    assert node is not None  # The parser has checked that this argument was passed.
    value = _numbers(node, evaluation)
    assert not isinstance(value, Vector)
    return float(value[0])


def _node_text(node: object) -> str:
    return " ".join(str(node).replace("{}", "").split())[:100]


def _without_parentheses(node: Expression) -> Expression:
    while isinstance(node, ParenExpr):
        node = node.expr
    return node


def _micros(duration: timedelta | None) -> int:
    return 0 if duration is None else int(round(duration.total_seconds() * 1000) * 1000)


def _newest_values(node: promql_parser.VectorSelector, evaluation: Evaluation) -> States | Vector:
    selector = selector_of(node, None, evaluation)
    if selector is None:
        return Vector.empty(len(evaluation.moments))
    if selector.metric.kind == HISTOGRAM and any(matcher.label == QUANTILE for matcher in selector.matchers):
        return numbers_of(selector, evaluation)
    return select(selector, evaluation)


def numbers_of(selector: Selector, evaluation: Evaluation) -> Vector:
    """Return the results of the newest windows as numbers. For a histogram, the results are its quantiles, one series
    per quantile, as in a summary of Prometheus.
    """
    if selector.metric.kind != HISTOGRAM:
        return select(selector, evaluation).values()
    quantile_matchers = [matcher for matcher in selector.matchers if matcher.label == QUANTILE]
    other_matchers = tuple(matcher for matcher in selector.matchers if matcher.label != QUANTILE)
    return _summary(select(replace(selector, matchers=other_matchers), evaluation), quantile_matchers)


def _summary(states: States, matchers: list[Matcher]) -> Vector:
    """Return the quantiles of histograms as a vector, one series per quantile, as in a summary of Prometheus.
    ``matchers`` select quantiles by the label ``quantile``.
    """
    parts = [Vector.empty(states.moment_count)]
    for q in vars(states.result_function)["quantiles"]:
        if all(matcher.matches_text(quantile_label(q)) for matcher in matchers):
            values = quantile_of(states, q).values()  # type: ignore[operator]
            parts.append(replace(values, series=[{**labels, QUANTILE: quantile_label(q)} for labels in values.series]))
    series = [labels for part in parts for labels in part.series]
    return Vector(series, np.concatenate([p.values for p in parts]), np.concatenate([p.present for p in parts]))


def _call(node: Call, evaluation: Evaluation) -> Value:
    """Return the value of a call of a function. Raise `Unanswerable` if this server does not evaluate the function."""
    name = node.func.name
    if name in ("absent", "absent_over_time"):
        return _absent(node, evaluation)
    if name in VALUE_FUNCTIONS:
        return VALUE_FUNCTIONS[name](*(_numbers(argument, evaluation) for argument in node.args))
    check_supported(FUNCTIONS, name)
    if FUNCTIONS[name] == MERGE:
        return _over_time(node, evaluation, ALL)
    value = evaluate(node.args[-1], evaluation)
    text = _node_text(node.args[-1])
    if isinstance(value, Vector) and not value.series:
        return value
    if name == HISTOGRAM_QUANTILE and isinstance(value, States) and value.has_all_buckets:
        value = value.with_result_function(value.result_function, (), HISTOGRAM)
    if not isinstance(value, States) or value.kind != HISTOGRAM:
        raise Unanswerable(
            f"{name} needs a sketch, and {text} is not a sketch; for buckets with the label le, {REMOTE_READ_ADVICE}"
        )
    value = replace(value, series=[ALL.kept_labels(labels) for labels in value.series])
    if name == HISTOGRAM_QUANTILE:
        return quantile_of(value, _constant_value(node.args[0], evaluation))
    if name == HISTOGRAM_FRACTION:
        lower, upper = (_constant_value(bound, evaluation) for bound in node.args[:2])
        return fraction_of(value, lower, upper)
    return part_of(value, HISTOGRAM_PARTS[name], text)


def _absent(node: Call, evaluation: Evaluation) -> Vector:
    """Return the value of ``absent`` or ``absent_over_time``: 1 at the moments at which no series has a value."""
    argument: Any = _without_parentheses(node.args[0])
    selector_node = argument.vector_selector if isinstance(argument, MatrixSelector) else argument
    is_selector = isinstance(selector_node, promql_parser.VectorSelector)
    matchers = tuple(map(Matcher.of, selector_node.matchers.matchers)) if is_selector else ()
    value: Value
    if isinstance(argument, SubqueryExpr):
        vector, steps, moments = _subquery(argument, evaluation)
        value = reduce_steps(
            "count_over_time",
            vector,
            steps,
            moments=moments,
            range_length=_micros(argument.range),
            deadline=evaluation.deadline,
        )
    elif isinstance(argument, MatrixSelector):
        selector = selector_of(selector_node, _micros(argument.range), evaluation)
        value = Vector.empty(len(evaluation.moments)) if selector is None else select(selector, evaluation)
    else:
        value = evaluate(argument, evaluation)
    if isinstance(value, States):
        value = _presence(value)
    assert isinstance(value, Vector)  # The parser has checked that the argument is a vector.
    return absent(value, matchers)


def _presence(states: States) -> Vector:
    """Return a vector that has a value for each series and moment for which ``states`` has a state. The value is 1 or,
    for the buckets of histograms, the count of the bucket. The vector is used by functions that only test whether a
    value exists, such as ``count``.
    """
    if states.kind == BUCKETS:
        return states.values()
    present = states.present()
    return Vector(states.series, np.ones(present.shape), present)


def _over_time(node: Call, evaluation: Evaluation, grouping: Grouping) -> States | Vector:
    """Return the value of a range function, such as ``rate``. Series in the same group of ``grouping`` are merged.

    ``grouping`` is the grouping of the aggregation that contains the function. Without an aggregation, it is `ALL`,
    which only removes the name of the metric.
    """
    name = node.func.name
    argument = _without_parentheses(node.args[-1])
    if isinstance(argument, SubqueryExpr):
        if name not in SUBQUERY_FUNCTIONS:
            supported = ", ".join(SUBQUERY_FUNCTIONS)
            raise Unanswerable(
                f"{name} is not supported for subqueries; {REMOTE_READ_ADVICE}; this server supports only {supported} "
                "for subqueries"
            )
        vector, steps, moments = _subquery(argument, evaluation)
        range_length = _micros(argument.range)
        values = reduce_steps(
            name, vector, steps, moments=moments, range_length=range_length, deadline=evaluation.deadline
        )
        return values.without_metric_name()
    assert isinstance(argument, MatrixSelector)  # The parser has checked that the argument is a range.
    range_length = _micros(argument.range)
    selector = selector_of(argument.vector_selector, range_length, evaluation)
    if selector is None:
        return Vector.empty(len(evaluation.moments))
    check_range_function(name, selector.metric.kind, selector.text)
    if selector.metric.kind == HISTOGRAM and any(matcher.label == QUANTILE for matcher in selector.matchers):
        raise Unanswerable(
            f"{selector.text}: quantiles of windows cannot be merged; use quantile_over_time, or {USE_PROMETHEUS}"
        )
    q = _constant_value(node.args[0], evaluation) if name == QUANTILE_OVER_TIME else None
    # A metric of the kind `LAST` supports only the range function last_over_time. The result of last_over_time is a
    # value of the metric itself, so the series keep the name of the metric. Other functions remove this name.
    if selector.metric.kind == LAST:
        return select(selector, evaluation)
    return merged_range_value(
        name, select(selector, evaluation, grouping), range_length, quantile=q, text=selector.text
    )


def _subquery(node: SubqueryExpr, evaluation: Evaluation) -> tuple[Vector, Instants, Instants]:
    """Return three values: the values of a subquery's expression at its steps, the times of the steps, and the moments
    at which the ranges of the subquery end.
    """
    if node.at is not None:
        raise Unanswerable(f"a subquery has the modifier @, which this server does not support; {REMOTE_READ_ADVICE}")
    if node.step is None:
        raise Unanswerable(
            f"the subquery [{duration_text(_micros(node.range))}:] has no step; add a step, such as [1h:1m], "
            f"or {USE_PROMETHEUS}"
        )
    moments = evaluation.moments - _micros(node.offset)
    step = _micros(node.step)
    range_length = _micros(node.range)
    evaluation.check_limits(cells=(int(moments[-1] - moments[0]) + range_length) // step)
    steps = steps_before(moments, range_length, step)
    if not len(steps):
        return Vector.empty(1), moments[:1], moments
    return _vector_value(node.expr, replace(evaluation, moments=steps, step=step)), steps, moments


def _aggregate(node: AggregateExpr, evaluation: Evaluation) -> States | Vector:
    """Return the value of an aggregation, such as ``sum by (host) (x)``. States are merged if merging gives the result
    of the aggregation. Otherwise they are converted to numbers, which are aggregated.
    """
    name = str(node.op)
    modifier = node.modifier
    check_supported(AGGREGATIONS, name)
    grouping = Grouping()
    if modifier is not None:
        grouping = Grouping(tuple(modifier.labels), modifier.type == promql_parser.AggModifierType.Without)
    value = _aggregation_operand(name, node.expr, grouping, evaluation)
    if isinstance(value, States):
        if value.can_be_merged_for(name, grouping):
            return value.merged(grouping)
        if name == "count":  # ``count`` does not read the values, so histograms can be counted too
            value = _presence(value)
        elif value.kind == HISTOGRAM:
            raise Unanswerable(f"{name} cannot merge the histograms {_node_text(node.expr)}; use sum, which can")
        else:
            value = value.values()
    if name in REDUCTIONS:
        return aggregate_values(name, value, grouping)
    parameter = _constant_value(node.param, evaluation)
    return (
        quantile(value, grouping, parameter) if name == "quantile" else select_ranked(name, value, grouping, parameter)
    )


def _aggregation_operand(name: str, node: Expression, grouping: Grouping, evaluation: Evaluation) -> States | Vector:
    """Return the value of ``node``, the operand of the aggregation ``name``. If ``node`` is a range function, and the
    aggregation can be computed by merging its states, return the states merged by ``grouping``.
    """
    node = _without_parentheses(node)
    if (
        isinstance(node, Call)
        and node.args
        and isinstance(argument := _without_parentheses(node.args[-1]), MatrixSelector)
    ):
        selector = selector_of(argument.vector_selector, None, replace(evaluation, warnings={}, infos={}))
        if selector is not None and can_merge_states(name, node.func.name, selector.metric.kind, grouping):
            return _over_time(node, evaluation, grouping)
    value = evaluate(node, evaluation)
    assert isinstance(value, States | Vector)  # The parser has checked that the operand is a vector.
    return value


def _binary(node: BinaryExpr, evaluation: Evaluation) -> Scalar | Vector:
    """Return the value of a binary operator. Raise `Unanswerable` if its modifier matches one series with many, or
    fills missing values.
    """
    operator = str(node.op)
    modifier = node.modifier
    check_supported(OPERATORS, operator)
    grouping = ALL
    if modifier is not None:
        fills = modifier.fill_values.lhs, modifier.fill_values.rhs
        is_one_to_one = modifier.card == promql_parser.VectorMatchCardinality.OneToOne
        if (operator not in SET_OPERATORS and not is_one_to_one) or fills != (None, None):
            raise Unanswerable(
                f"{_node_text(modifier)} is not supported, because this server matches series one to one; "
                f"{REMOTE_READ_ADVICE}"
            )
        if modifier.matching is not None:
            without = modifier.matching.type == promql_parser.LabelModifierType.Exclude
            grouping = Grouping(tuple(modifier.matching.labels), without)
    if operator in SET_OPERATORS:
        return apply_set_operator(
            operator, _vector_value(node.lhs, evaluation), _vector_value(node.rhs, evaluation), grouping
        )
    as_bool = modifier is not None and modifier.return_bool
    left = _numbers(node.lhs, evaluation)
    right = _numbers(node.rhs, evaluation)
    return apply_operator(operator, left, right, as_bool=as_bool, grouping=grouping)


def _negative(node: UnaryExpr, evaluation: Evaluation) -> Scalar | Vector:
    value = _numbers(node.expr, evaluation)
    return replace(value.without_metric_name(), values=-value.values) if isinstance(value, Vector) else -value


def _reject_range(node: Expression, evaluation: Evaluation) -> Value:
    raise Unanswerable(
        f"{_node_text(node)} is a range, which can be evaluated only at a single moment; apply a function to it"
    )


_NODES: dict[type, Callable[[Any, Evaluation], Value]] = {
    promql_parser.NumberLiteral: lambda node, evaluation: np.full(len(evaluation.moments), node.val),
    promql_parser.StringLiteral: lambda node, _: str(node.val),
    promql_parser.VectorSelector: _newest_values,
    MatrixSelector: _reject_range,
    SubqueryExpr: _reject_range,
    ParenExpr: lambda node, evaluation: evaluate(node.expr, evaluation),
    Call: _call,
    AggregateExpr: _aggregate,
    BinaryExpr: _binary,
    UnaryExpr: _negative,
}
