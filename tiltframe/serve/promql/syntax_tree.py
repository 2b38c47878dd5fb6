"""The syntax tree of an expression as dicts, lists and texts, for the tree view of Prometheus' web page.

Source: ``web/api/v1/translate_ast.go`` of prometheus/prometheus.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import promql_parser
from promql_parser import AggregateExpr, BinaryExpr, Call, MatchOp, MatrixSelector, SubqueryExpr, VectorSelector

from tiltframe.serve.promql.operators import SET_OPERATORS
from tiltframe.serve.promql.response import number_texts

Tree = dict[str, Any]

_MATCH_OPERATORS = ((MatchOp.Equal, "="), (MatchOp.NotEqual, "!="), (MatchOp.Re, "=~"), (MatchOp.NotRe, "!~"))
_VALUE_TYPES = {"Vector": "vector", "Scalar": "scalar", "Matrix": "matrix", "String": "string"}


def syntax_tree(node: promql_parser.Expr) -> Tree:
    """Return the syntax tree of an expression as a dict, which contains the trees of the parts of the expression.

    >>> import promql_parser
    >>> syntax_tree(promql_parser.parse("(1)"))
    {'type': 'parenExpr', 'expr': {'type': 'numberLiteral', 'val': '1'}}
    """
    return _NODES[type(node)](node)


def _aggregation(node: AggregateExpr) -> Tree:
    modifier = node.modifier
    return {
        "type": "aggregation",
        "op": str(node.op),
        "expr": syntax_tree(node.expr),
        "param": None if node.param is None else syntax_tree(node.param),
        "grouping": [] if modifier is None else list(modifier.labels),
        "without": modifier is not None and modifier.type == promql_parser.AggModifierType.Without,
    }


def _binary(node: BinaryExpr) -> Tree:
    return {
        "type": "binaryExpr",
        "op": str(node.op),
        "lhs": syntax_tree(node.lhs),
        "rhs": syntax_tree(node.rhs),
        "matching": _matching(node) if _is_vector(node.lhs) and _is_vector(node.rhs) else None,
        "bool": node.modifier is not None and node.modifier.return_bool,
    }


def _matching(node: BinaryExpr) -> Tree:
    """Return the rule by which the series of two vectors match: the cardinality and the labels."""
    cards = promql_parser.VectorMatchCardinality
    names = (
        (cards.OneToOne, "one-to-one"),
        (cards.ManyToOne, "many-to-one"),
        (cards.OneToMany, "one-to-many"),
    )
    modifier = node.modifier
    matching = None if modifier is None else modifier.matching
    card = cards.OneToOne if modifier is None else modifier.card
    if str(node.op) in SET_OPERATORS:
        card = cards.ManyToMany
    fills = (None, None) if modifier is None else (modifier.fill_values.lhs, modifier.fill_values.rhs)
    include = None if modifier is None else modifier.group_labels
    return {
        "card": next((text for value, text in names if value == card), "many-to-many"),
        "labels": [] if matching is None else list(matching.labels),
        "on": matching is not None and matching.type != promql_parser.LabelModifierType.Exclude,
        "include": list(include or []),
        "fillValues": {"lhs": fills[0], "rhs": fills[1]},
    }


def _is_vector(node: promql_parser.Expr) -> bool:
    """Return whether the value of an operand is a vector and not a number."""
    if isinstance(node, promql_parser.ParenExpr | promql_parser.UnaryExpr):
        return _is_vector(node.expr)
    if isinstance(node, BinaryExpr):
        return _is_vector(node.lhs) or _is_vector(node.rhs)
    if isinstance(node, Call):
        return bool(node.func.return_type == promql_parser.ValueType.Vector)
    return isinstance(node, AggregateExpr | VectorSelector)


def _call(node: Call) -> Tree:
    function = node.func
    described = {
        "name": function.name,
        "argTypes": [_value_type(kind) for kind in function.arg_types],
        "variadic": function.variadic,
        "returnType": _value_type(function.return_type),
    }
    return {"type": "call", "func": described, "args": [syntax_tree(argument) for argument in node.args]}


def _value_type(kind: object) -> str:
    return _VALUE_TYPES[str(kind).rpartition(".")[2]]


def _selector(node: VectorSelector) -> Tree:
    name_matchers = [] if node.name is None else [{"name": "__name__", "value": node.name, "type": "="}]
    matchers = [
        {"name": m.name, "value": m.value, "type": next(text for op, text in _MATCH_OPERATORS if op == m.op)}
        for m in node.matchers.matchers
    ]
    return {
        "type": "vectorSelector",
        "name": node.name or "",
        "offset": _millis(node.offset),
        "matchers": [*matchers, *name_matchers],
        **_moment(node.at),
        "anchored": False,
        "smoothed": False,
    }


def _matrix(node: MatrixSelector) -> Tree:
    return {**_selector(node.vector_selector), "type": "matrixSelector", "range": _millis(node.range)}


def _subquery(node: SubqueryExpr) -> Tree:
    return {
        "type": "subquery",
        "expr": syntax_tree(node.expr),
        "range": _millis(node.range),
        "offset": _millis(node.offset),
        "step": _millis(node.step),
        **_moment(node.at),
    }


def _moment(at: promql_parser.AtModifier | None) -> Tree:
    """Return the members ``timestamp`` and ``startOrEnd`` for the modifier ``@``. For a fixed time, ``timestamp`` is
    the time in milliseconds. For ``start()`` and ``end()``, ``startOrEnd`` is "start" or "end". A member that does not
    apply equals None.
    """
    if at is None:
        return {"timestamp": None, "startOrEnd": None}
    kinds = promql_parser.AtModifierType
    if at.at is not None:
        return {"timestamp": round(at.at.timestamp() * 1000), "startOrEnd": None}
    return {"timestamp": None, "startOrEnd": "start" if at.type == kinds.Start else "end"}


def _millis(duration: timedelta | None) -> int:
    return 0 if duration is None else round(duration.total_seconds() * 1000)


def _number(node: promql_parser.NumberLiteral) -> Tree:
    return {"type": "numberLiteral", "val": number_texts(np.array([node.val]))[0].as_py()}


_NODES: dict[type, Callable[[Any], Tree]] = {
    promql_parser.NumberLiteral: _number,
    promql_parser.StringLiteral: lambda node: {"type": "stringLiteral", "val": node.val},
    promql_parser.ParenExpr: lambda node: {"type": "parenExpr", "expr": syntax_tree(node.expr)},
    promql_parser.UnaryExpr: lambda node: {"type": "unaryExpr", "op": "-", "expr": syntax_tree(node.expr)},
    AggregateExpr: _aggregation,
    BinaryExpr: _binary,
    Call: _call,
    MatrixSelector: _matrix,
    SubqueryExpr: _subquery,
    VectorSelector: _selector,
}
