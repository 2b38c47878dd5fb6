"""Evaluation: an expression, node by node; each part that is not answered is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import promql_parser
from promql_parser import AggregateExpr, BinaryExpr, Call, MatrixSelector, NumberLiteral, ParenExpr, SubqueryExpr

from aggr.arguments import shown
from tiltframe.serve.promql.aggregate import AGGREGATIONS, aggregated, quantile, ranked
from tiltframe.serve.promql.cells import States, Vector
from tiltframe.serve.promql.errors import Unanswerable
from tiltframe.serve.promql.functions import (
    COUNTING,
    HISTOGRAM_QUANTILE,
    QUANTILE_OVER_TIME,
    check_over_time,
    histogram_function,
    over_time,
    quantile_of,
)
from tiltframe.serve.promql.labels import ALL, Grouping, Matcher
from tiltframe.serve.promql.metrics import HISTOGRAM, QUANTILE
from tiltframe.serve.promql.operators import ARITHMETIC, COMPARISONS, Scalar, combined
from tiltframe.serve.promql.parse import SECOND, Expression, written
from tiltframe.serve.promql.select import Evaluation, select, selector_of
from tiltframe.serve.promql.subqueries import SUBQUERY_FUNCTIONS, reduced, steps_before
from windows.timezone import Instants

Value: TypeAlias = "Scalar | States | Vector | str"

_MATH: dict[str, Callable[[Any], Any]] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
    "exp": np.exp,
    "ln": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "sqrt": np.sqrt,
    "sgn": np.sign,
}
_HISTOGRAMS = (HISTOGRAM_QUANTILE, "histogram_avg", "histogram_count", "histogram_sum")


def evaluate(node: Expression, evaluation: Evaluation) -> Value:
    """Evaluate an expression at the moments of an evaluation.

    Raises `Unanswerable` for what is no merge of states, `OutOfTime` after the deadline.
    """
    evaluation.check()
    return _NODES[type(node)](node, evaluation)


def numbers_of(value: Value, node: Expression) -> Scalar | Vector:
    """Read the numbers of a value; raises `Unanswerable` for texts and histograms."""
    if isinstance(value, str):
        raise Unanswerable(f"{shown(value)} is a text, and here numbers are computed with")
    if not isinstance(value, States):
        return value
    if value.kind == HISTOGRAM:
        raise Unanswerable(
            f"{_text(node)} is a histogram, and here numbers are computed with; read it by histogram_quantile, "
            "histogram_count, histogram_sum or histogram_avg"
        )
    return value.values()


def _numbers(node: Expression, evaluation: Evaluation) -> Scalar | Vector:
    return numbers_of(evaluate(node, evaluation), node)


def _vector_of(node: Expression, evaluation: Evaluation) -> Vector:
    value = _numbers(node, evaluation)
    assert isinstance(value, Vector)  # the parser has checked types
    return value


def _constant(node: Expression | None, evaluation: Evaluation, what: str) -> float:
    assert node is not None  # the parser has counted
    value = _numbers(node, evaluation)
    assert not isinstance(value, Vector)
    if not (np.isnan(value).all() or (value == value[0]).all()):
        raise Unanswerable(f"{what} must be the same at all steps; {_text(node)} is not")
    return float(value[0])


def _text(node: Expression) -> str:
    return " ".join(str(node).replace("{}", "").split())[:100]


def _number(node: NumberLiteral, evaluation: Evaluation) -> Scalar:
    return np.full(len(evaluation.moments), node.val)


def _newest(node: promql_parser.VectorSelector, evaluation: Evaluation) -> States | Vector:
    selector, matchers = selector_of(node, None, evaluation)
    if selector is None:
        return _nothing(evaluation)
    of_quantile = [matcher for matcher in matchers if matcher.label == QUANTILE]
    if selector.metric.kind != HISTOGRAM or not of_quantile:
        return select(selector, evaluation)
    others = tuple(matcher for matcher in matchers if matcher.label != QUANTILE)
    return _summary(select(replace(selector, matchers=others), evaluation), of_quantile)


def _summary(states: States, matchers: list[Matcher]) -> Vector:
    """Read the quantiles of a measure as a summary, each a series."""
    quantiles = {repr(q).removesuffix(".0"): q for q in states.reader.parameters()["quantiles"]}
    parts = []
    for text, q in quantiles.items():
        if all(matcher.takes(text) for matcher in matchers):
            read = quantile_of(states, q)
            vector = read.values() if isinstance(read, States) else read
            parts.append(replace(vector, series=[{**labels, QUANTILE: text} for labels in vector.series]))
    if not parts:
        return Vector([], np.zeros((0, states.moments)), np.zeros((0, states.moments), np.bool_))
    series = [labels for part in parts for labels in part.series]
    return Vector(
        series, np.concatenate([part.values for part in parts]), np.concatenate([part.present for part in parts])
    )


def _nothing(evaluation: Evaluation) -> Vector:
    shape = (0, len(evaluation.moments))
    return Vector([], np.zeros(shape), np.zeros(shape, np.bool_))


def _call(node: Call, evaluation: Evaluation) -> Value:
    name, arguments = node.func.name, node.args
    if name in COUNTING or name.endswith("_over_time"):
        return _over_time(node, evaluation, ALL)
    if name in _HISTOGRAMS:
        value = evaluate(arguments[-1], evaluation)
        q = _constant(arguments[0], evaluation, "the quantile") if name == HISTOGRAM_QUANTILE else None
        if isinstance(value, Vector) and not value.series:
            return value
        if not isinstance(value, States):
            raise Unanswerable(f"{name} reads histograms, and {_text(arguments[-1])} is none")
        return _unnamed(histogram_function(name, value, q, _text(arguments[-1])))
    if name in _MATH:
        vector = _vector_of(arguments[0], evaluation).unnamed()
        with np.errstate(all="ignore"):
            return replace(vector, values=_MATH[name](vector.values))
    if name == "time":
        return evaluation.moments / SECOND
    if name == "vector":
        scalar = _numbers(arguments[0], evaluation)
        assert not isinstance(scalar, Vector)
        return Vector([{}], scalar[None, :], np.ones((1, len(scalar)), np.bool_))
    if name == "scalar":
        vector = _vector_of(arguments[0], evaluation)
        alone = vector.present.sum(axis=0) == 1
        return np.where(alone, np.where(vector.present, vector.values, 0.0).sum(axis=0), np.nan)
    raise Unanswerable(f"the function {name} is not answered: it is no merge of states, nor arithmetic of results")


def _unnamed(value: States | Vector) -> States | Vector:
    return value.unnamed() if isinstance(value, Vector) else replace(value, series=[ALL.kept(s) for s in value.series])


def _over_time(node: Call, evaluation: Evaluation, grouping: Grouping) -> States | Vector:
    """Evaluate a function of a range, merging series by the labels that an aggregation above keeps."""
    name, argument = node.func.name, node.args[-1]
    if len(node.args) > (2 if name == QUANTILE_OVER_TIME else 1):
        raise Unanswerable(f"the function {name} is not answered: it is no merge of states")
    while isinstance(argument, ParenExpr):
        argument = argument.expr
    if isinstance(argument, SubqueryExpr):
        if name not in SUBQUERY_FUNCTIONS:
            allowed = ", ".join(SUBQUERY_FUNCTIONS)
            raise Unanswerable(f"{name} of a subquery is not answered; of its values {allowed} are")
        vector, steps, moments = _subquery(argument, evaluation)
        return reduced(name, vector.unnamed(), steps, moments, _micros(argument.range))
    assert isinstance(argument, MatrixSelector)
    span = _micros(argument.range)
    selector, _ = selector_of(argument.vector_selector, span, evaluation)
    if selector is None:
        return _nothing(evaluation)
    check_over_time(name, selector.metric.kind, selector.text)
    q = _constant(node.args[0], evaluation, "the quantile") if name == QUANTILE_OVER_TIME else None
    return over_time(name, select(selector, evaluation, grouping), span, q, selector.text)


def _subquery(node: SubqueryExpr, evaluation: Evaluation) -> tuple[Vector, Instants, Instants]:
    """Evaluate what a subquery is of, at its steps; return them, and the moments whose ranges they lie in."""
    if node.at is not None:
        raise Unanswerable("a subquery has the modifier @, which is not answered; ask at that time, or use offset")
    if node.step is None:
        raise Unanswerable(f"the subquery [{written(_micros(node.range))}:] has no step; say of which windows, [1h:1m]")
    moments = evaluation.moments - (0 if node.offset is None else _micros(node.offset))
    step, span = _micros(node.step), _micros(node.range)
    count = (int(moments[-1]) - int(moments[0]) + span) // max(step, 1)
    evaluation.check(count)
    steps = steps_before(moments, span, step)
    if not len(steps):
        return _nothing(evaluation), np.array([int(moments[-1])]), moments
    value = _numbers(node.expr, replace(evaluation, moments=steps, step=step))
    assert isinstance(value, Vector)
    return value, steps, moments


def _micros(duration: Any) -> int:
    return int(round(duration.total_seconds() * 1000) * 1000)


def _aggregate(node: AggregateExpr, evaluation: Evaluation) -> States | Vector:
    name, grouping = str(node.op), _grouping(node.modifier)
    value = _under(name, node.expr, grouping, evaluation)
    if isinstance(value, States) and value.merged_by == name:
        return value.merged(grouping)
    if isinstance(value, States) and name == "count":
        value = Vector(value.series, np.zeros(value.present().shape), value.present())
    if isinstance(value, States):
        if value.kind == HISTOGRAM:
            raise Unanswerable(f"{name} of histograms is no merge of them; sum merges them: {_text(node.expr)}")
        value = value.values()
    if name in AGGREGATIONS:
        return aggregated(name, value, grouping)
    if name in ("quantile", "topk", "bottomk"):
        parameter = _constant(node.param, evaluation, f"the parameter of {name}")
        if name == "quantile":
            return quantile(value, grouping, parameter)
        return ranked(name, value, grouping, parameter)
    allowed = ", ".join((*AGGREGATIONS, "quantile", "topk", "bottomk"))
    raise Unanswerable(f"the aggregation {name} is not answered; {allowed} are")


def _under(name: str, node: Expression, grouping: Grouping, evaluation: Evaluation) -> States | Vector:
    """Evaluate what is aggregated; a range whose states the aggregation merges is merged as it is read."""
    while isinstance(node, ParenExpr):
        node = node.expr
    if isinstance(node, Call) and isinstance(node.args[-1] if node.args else None, MatrixSelector):
        trial, _ = selector_of(node.args[-1].vector_selector, None, replace(evaluation, warnings={}))
        if trial is not None and _merges(name, node.func.name, trial.metric.kind):
            return _over_time(node, evaluation, grouping)
    value = evaluate(node, evaluation)
    assert isinstance(value, States | Vector)  # the parser has checked types
    return value


def _merges(aggregation: str, function: str, kind: str) -> bool:
    """Say whether an aggregation of what a function reads of ranges is a merge."""
    if kind != HISTOGRAM:
        return aggregation == kind
    read = function.removesuffix("_over_time")
    return aggregation == {"min": "min", "max": "max", "avg": "avg", "quantile": ""}.get(read, "sum")


def _grouping(modifier: promql_parser.AggModifier | None) -> Grouping:
    if modifier is None:
        return Grouping()
    without = modifier.type == promql_parser.AggModifierType.Without
    return Grouping(tuple(modifier.labels), without)


def _binary(node: BinaryExpr, evaluation: Evaluation) -> Scalar | Vector:
    operator, modifier = str(node.op), node.modifier
    if operator not in ARITHMETIC and operator not in COMPARISONS:
        raise Unanswerable(f"the operator {operator} is not answered; arithmetic and comparisons are")
    grouping, as_bool = ALL, False
    if modifier is not None:
        if modifier.card != promql_parser.VectorMatchCardinality.OneToOne:
            raise Unanswerable("group_left and group_right are not answered: series are matched one to one")
        fills = modifier.fill_values
        if fills is not None and (fills.lhs is not None or fills.rhs is not None):
            raise Unanswerable("fill values of operators are not answered")
        as_bool = modifier.return_bool
        if modifier.matching is not None:
            without = modifier.matching.type == promql_parser.LabelModifierType.Exclude
            grouping = Grouping(tuple(modifier.matching.labels), without)
    return combined(operator, _numbers(node.lhs, evaluation), _numbers(node.rhs, evaluation), as_bool, grouping)


def _negative(node: promql_parser.UnaryExpr, evaluation: Evaluation) -> Scalar | Vector:
    value = _numbers(node.expr, evaluation)
    return replace(value.unnamed(), values=-value.values) if isinstance(value, Vector) else -value


def _in_no_function(node: Expression, evaluation: Evaluation) -> Value:
    raise Unanswerable(f"{_text(node)} is a range, which is answered at one moment alone; put it into a function")


_NODES: dict[type, Callable[[Any, Evaluation], Value]] = {
    NumberLiteral: _number,
    promql_parser.StringLiteral: lambda node, _: str(node.val),
    promql_parser.VectorSelector: _newest,
    MatrixSelector: _in_no_function,
    SubqueryExpr: _in_no_function,
    ParenExpr: lambda node, evaluation: evaluate(node.expr, evaluation),
    Call: _call,
    AggregateExpr: _aggregate,
    BinaryExpr: _binary,
    promql_parser.UnaryExpr: _negative,
}


def range_alone(node: Expression, evaluation: Evaluation) -> tuple[Vector, Instants] | None:
    """Evaluate a range by itself at one moment: its windows, as Prometheus gives samples, or its steps.

    None for what is no range.
    """
    while isinstance(node, ParenExpr):
        node = node.expr
    if isinstance(node, SubqueryExpr):
        vector, steps, _ = _subquery(node, evaluation)
        return vector, steps
    if not isinstance(node, MatrixSelector):
        return None
    span = _micros(node.range)
    selector, _ = selector_of(node.vector_selector, None, evaluation)
    if selector is None:
        return _nothing(evaluation), evaluation.moments
    last = int(evaluation.moments[0]) - selector.offset
    finest = selector.metric.store.frame.levels[0]
    evaluation.check(int(span / finest.length))
    ends = finest.ends(finest.starts_between(last - span - int(finest.length), last + 1))
    ends = ends[(ends > last - span) & (ends <= last)]
    if not len(ends):
        return _nothing(evaluation), evaluation.moments
    vector = _numbers(node.vector_selector, replace(evaluation, moments=ends + selector.offset, lookback=0))
    assert isinstance(vector, Vector)
    return vector, ends
