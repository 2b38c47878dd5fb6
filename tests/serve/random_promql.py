"""Random PromQL expressions, each in two texts: for this server, and for a Prometheus that reads it by remote read.

The two texts differ only where the documentation states a difference of windows and samples:

- A range of Prometheus 2 includes its start, so ranges of samples are a millisecond shorter.
- A counter of remote read is a running total, and 0 without rows; here it is the number of a window, and absent.
- A plain selector of a range query reads the coarsest windows that divide the step.
- A mean over a range is that of all rows, a quotient of two totals.
- ``avg`` of means is that of all rows, and is not drawn.
- The value of ``last`` is at the time of its event, and here at the end of its window.
- ``latency`` is a native histogram here, and a summary for Prometheus, which has the parts of the histogram as series.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

LEVELS = {"10s": 10, "1m": 60, "10m": 600, "1h": 3600}
BOUNDS = ("0.3", "0.9", "1.9", "+Inf")
RANGES = (60, 120, 300, 600, 1800, 3600)
_LOOKBACK = 300
_EXTREMES = {"min_over_time": ("fastest", "latency_min"), "max_over_time": ("slowest", "latency_max")}
_TOTALS = ("requests_total", "bytes", "seconds", "latency_count", "latency_sum", "size_count")
_WHOLE = ("requests_total", "bytes", "latency_count", "size_count")


@dataclass(frozen=True)
class Expression:
    """An expression in both texts.

    ``is_exact`` means that its values are whole numbers, which both compute without rounding, and ``is_positive`` that
    they are at least 0. Only exact values are subtracted or compared with one another, because the order of additions
    would decide otherwise. If ``quantile`` is not None, it is the rank of a quantile, from 0 to 1, and Prometheus
    computes the numbers of values by bucket in place of the quantile, because it would interpolate.
    ``is_mean`` means that ``avg`` of the values is the mean of all rows here, and of the values in Prometheus.
    """

    here: str
    prometheus: str
    is_exact: bool = False
    is_positive: bool = True
    quantile: float | None = None
    is_mean: bool = False

    def inside(self, before: str, after: str = ")", **changes: object) -> Expression:
        """Return the expression between two texts."""
        changes.setdefault("is_mean", False)
        texts = {"here": f"{before}{self.here}{after}", "prometheus": f"{before}{self.prometheus}{after}"}
        return replace(self, **texts, **changes)


@dataclass(frozen=True)
class Drawing:
    """Draws expressions that are evaluated every ``step`` seconds, or at a single moment without a ``step``.

    ``is_aligned`` means that windows of the finest level end at all moments; otherwise Prometheus extrapolates totals.
    ``offsets`` are the offsets of selectors, in seconds.
    """

    rng: random.Random
    step: int | None
    is_aligned: bool
    offsets: tuple[int, ...] = (10, 30, 60, 90, 600, 3600)

    def expression(self) -> Expression:
        """Draw an expression of a random depth."""
        if self.is_aligned and self.rng.random() < 0.06:
            return self._quantile()
        return self._vector(self.rng.choice((0, 1, 1, 2, 2, 3)))

    def _vector(self, depth: int, *, exact: bool = False) -> Expression:
        if not depth:
            return self._leaf(exact)
        shapes = [self._aggregation, self._arithmetic, self._comparison, self._set, self._subquery, self._absent]
        for _ in range(20):
            drawn = self.rng.choices(shapes, (5, 4, 3, 3, 2, 1))[0](depth - 1)
            if drawn.is_exact or not exact:
                return drawn
        return self._leaf(exact)

    def _leaf(self, exact: bool = False) -> Expression:
        shapes = [self._plain_total]
        if self.is_aligned:
            shapes += [self._increase, self._increase]
        if self.is_aligned and not exact:
            shapes += [self._rate, self._mean, self._part, self._buckets, self._fraction]
        if not exact:
            shapes += [self._extreme, self._extreme, self._last, self._plain_extreme, self._plain_last]
        if not exact and self._window() == LEVELS["10s"]:
            shapes.append(self._plain_gauge)
        if not exact:
            shapes.append(self._sum_of_windows)
        return self.rng.choice(shapes)()

    # selectors

    def _matchers(self) -> str:
        texts = []
        matchers = {
            "host": (
                ("=", "a"),
                ("=", "none"),
                ("!=", "ü"),
                ("!=", ""),
                ("=~", "a|b|w.2"),
                ("=~", ".+"),
                ("=~", "[a-c]"),
            ),
            "code": (("=", "200"), ("!=", "500"), ("=~", "(200|404)"), ("!~", "4.."), ("=~", r"\\d+"), ("!~", "none")),
        }
        for label, choices in matchers.items():
            if self.rng.random() < 0.25:
                operator, text = self.rng.choice(choices)
                texts.append(f'{label}{operator}"{text}"')
        if self.rng.random() < 0.1:
            texts.append('store="web"')
        return ",".join(texts)

    def _offset(self) -> str:
        if self.rng.random() < 0.8:
            return ""
        return f" offset {self.rng.choice(self.offsets)}s"

    def _window(self) -> int:
        """Return the length of the windows that a plain selector reads here: the coarsest that divide the step."""
        return max((size for size in LEVELS.values() if self.step and self.step % size == 0), default=10)

    def _newest(self, name: str, matchers: str, values: str, **flags: bool) -> Expression:
        """Return a plain selector, and for Prometheus the last of the values of windows in the lookback period."""
        window, offset = self._window(), self._offset()
        lookback = max(_LOOKBACK, window) * 1000 - 1
        prometheus = f"last_over_time(({values})[{lookback}ms:{window}s]{offset})"
        return Expression(f"{name}{{{matchers}}}{offset}", prometheus, **flags)

    def _plain_total(self) -> Expression:
        name, matchers = self.rng.choice(_WHOLE), self._matchers()
        return self._newest(name, matchers, f"increase({name}{{{matchers}}}[{self._window()}s]) > 0", is_exact=True)

    def _plain_extreme(self) -> Expression:
        function = self.rng.choice(list(_EXTREMES))
        name, matchers = self.rng.choice(_EXTREMES[function]), self._matchers()
        return self._newest(name, matchers, f"{function}({name}{{{matchers}}}[{self._window() * 1000 - 1}ms])")

    def _plain_last(self) -> Expression:
        matchers, milliseconds = self._matchers(), self._window() * 1000 - 1
        values = f"last_over_time(newest{{{matchers}}}[{milliseconds}ms] offset 1ms)"
        return self._newest("newest", matchers, values)

    def _plain_gauge(self) -> Expression:
        name, *matchers = self.rng.choice(
            (("fastest",), ("slowest",), ("mean",), ("spread",), ("latency", 'quantile="0.5"'), ("latency_mean",))
        )
        text = f"{name}{{{','.join(filter(None, [*matchers, self._matchers()]))}}}{self._offset()}"
        return Expression(text, text, is_mean="mean" in text)

    # functions of ranges

    def _range(self) -> tuple[int, str, str]:
        return self.rng.choice(RANGES), self._matchers(), self._offset()

    def _increase(self) -> Expression:
        return _total("increase", self.rng.choice(_WHOLE), *self._range(), is_exact=True)

    def _rate(self) -> Expression:
        return _total(self.rng.choice(("rate", "increase")), self.rng.choice(_TOTALS), *self._range())

    def _sum_of_windows(self) -> Expression:
        span, matchers, offset = self._range()
        name = self.rng.choice(_TOTALS)
        return _of_samples("sum_over_time", name, matchers, span=span, offset=offset, is_exact=name in _WHOLE)

    def _extreme(self) -> Expression:
        function = self.rng.choice(list(_EXTREMES))
        span, matchers, offset = self._range()
        return _of_samples(function, self.rng.choice(_EXTREMES[function]), matchers, span=span, offset=offset)

    def _last(self) -> Expression:
        span, matchers, offset = self._range()
        # Windows that end in the range have events from the start of the first of them on.
        if not self.is_aligned or offset:
            return self._extreme()
        prometheus = f"last_over_time(newest{{{matchers}}}[{span * 1000 - 1}ms] offset 1ms)"
        return Expression(f"last_over_time(newest{{{matchers}}}[{span}s])", prometheus)

    def _mean(self) -> Expression:
        span, matchers, offset = self._range()
        name, total, count = self.rng.choice(
            (("mean", "seconds", "requests_total"), ("latency", "latency_sum", "latency_count"))
        )
        return Expression(
            f"avg_over_time({name}{{{matchers}}}[{span}s]{offset})",
            f"({_increased(total, span, matchers, offset)} / {_increased(count, span, matchers, offset)})",
            is_mean=True,
        )

    # histograms

    def _part(self) -> Expression:
        """Draw a part of a native histogram: its count, sum, mean, minimum or maximum."""
        span, matchers, offset = self._range()
        part = self.rng.choice(("count", "sum", "min", "max"))
        if self.rng.random() < 0.5:
            here = f"{part}_over_time(latency{{{matchers}}}[{span}s]{offset})"
            if part in ("count", "sum"):
                return Expression(here, _increased(f"latency_{part}", span, matchers, offset))
            samples = _of_samples(f"{part}_over_time", f"latency_{part}", matchers, span=span, offset=offset)
            return replace(samples, here=here)
        grouping, part = self._grouping(), self.rng.choice(("count", "sum", "avg"))
        here = f"histogram_{part}(sum{grouping} (rate(latency{{{matchers}}}[{span}s]{offset})))"
        totals = [
            f"sum{grouping} ({_increased(f'latency_{name}', span, matchers, offset, function='rate')})"
            for name in (("sum", "count") if part == "avg" else (part,))
        ]
        return Expression(here, f"({' / '.join(totals)})")

    def _buckets(self) -> Expression:
        name = self.rng.choice(("latency", "rounded", "size"))
        span, matchers, offset = self._range()
        function = self.rng.choice(("rate", "increase"))
        of_le = self.rng.choice(("", 'le="0.9"', 'le!="+Inf"', 'le=~"0.3|1.9"')) if name != "size" else ""
        selector = f"{name}_bucket{{{','.join(filter(None, [matchers, of_le]))}}}[{span}s]{offset}"
        rows = _increased(f"{name}_count", span, matchers, offset)
        here = f"{function}({selector})"
        return Expression(here, f"({here} and ignoring (le) {rows})", is_exact=function == "increase")

    def _fraction(self) -> Expression:
        """Draw the fraction of a native histogram's values up to a bound, which is one bucket of a classic one."""
        span, matchers, offset = self._range()
        bound, by = self.rng.choice(("0.05", "0.3", "1.7")), self.rng.choice(("", "host", "code", "host, code"))
        here = f"histogram_fraction(-1, {bound}, sum by ({by}) (rate(latency{{{matchers}}}[{span}s]{offset})))"
        of_bound = ",".join(filter(None, [matchers, f'le="{bound}"']))
        count = _increased("latency_count", span, matchers, offset, function="rate")
        up_to = f"sum by ({by}) (rate(latency_bucket{{{of_bound}}}[{span}s]{offset}) and ignoring (le) {count})"
        return Expression(here, f"({up_to} / sum by ({by}) ({count}))")

    def _quantile(self) -> Expression:
        """Draw a quantile, which is a value of the sketch here; for Prometheus, the buckets that have its rank."""
        span, matchers, offset = self._range()
        q, by = self.rng.choice((0.1, 0.25, 0.5, 0.9, 0.99)), self.rng.choice(("", "host", "code", "host, code"))
        selector = f"latency_bucket{{{matchers}}}[{span}s]{offset}"
        of_buckets = f"histogram_quantile({q}, sum by ({', '.join(filter(None, ['le', by]))}) (rate({selector})))"
        native = f"histogram_quantile({q}, sum by ({by}) (rate(latency{{{matchers}}}[{span}s]{offset})))"
        over_time = f"quantile_over_time({q}, latency{{{matchers}}}[{span}s]{offset})"
        choices = [of_buckets, native] + [over_time] * (by == "host, code")
        buckets = f"sum by ({', '.join(filter(None, ['le', by]))}) (increase({selector}))"
        return Expression(self.rng.choice(choices), buckets, quantile=q)

    # operators

    def _grouping(self) -> str:
        labels = self.rng.choice(("host", "code", "host, code", "", "none, host"))
        return self.rng.choice(("", f" by ({labels})", f" without ({labels})"))

    def _aggregation(self, depth: int) -> Expression:
        name = self.rng.choice(("sum", "sum", "avg", "min", "max", "count", "quantile", "topk", "bottomk"))
        if name in ("topk", "bottomk"):  # of values without ties
            operand = self._extreme() if not self.is_aligned else self.rng.choice((self._extreme, self._mean))()
            return operand.inside(f"{name}{self._grouping()} ({self.rng.randrange(4)}, ")
        operand = self._vector(depth)
        if name == "avg" and operand.is_mean:
            name = "max"
        if name == "quantile":
            q = self.rng.choice(("0", "0.3", "0.5", "1", "-1", "2"))
            return operand.inside(f"quantile{self._grouping()} ({q}, ", is_exact=False, is_positive=False)
        is_exact = name == "count" or (operand.is_exact and name != "avg")
        return operand.inside(f"{name}{self._grouping()} (", is_exact=is_exact)

    def _matching(self) -> str:
        labels = self.rng.choice(("host", "code", "host, code", ""))
        return self.rng.choice(("", "", f" on ({labels})", f" ignoring ({labels})"))

    def _arithmetic(self, depth: int) -> Expression:
        left = self._vector(depth)
        if self.rng.random() < 0.1:
            return left.inside("-(", is_positive=False)
        operators = ["+", "*", "/"]
        if self.rng.random() < 0.4:
            return self._with_number(left)
        right = self._vector(depth)
        are_positive, are_exact = left.is_positive and right.is_positive, left.is_exact and right.is_exact
        if not are_positive and not are_exact:
            operators = ["*", "/"]
        if are_exact:
            operators += ["-", "%"]
        if are_positive:
            operators += ["atan2"]
        operator = self.rng.choice(operators)
        is_exact = are_exact and operator in "+-*%"
        is_positive = are_positive and operator != "-"
        return _joined(left, f"{operator}{self._matching()}", right, is_exact=is_exact, is_positive=is_positive)

    def _with_number(self, operand: Expression) -> Expression:
        number = self.rng.choice(("2", "0.5", "100", "3"))
        operators = ["+", "*", "/", "-"] if operand.is_exact else ["*", "/"] + ["+", "^"] * operand.is_positive
        operator = self.rng.choice(operators)
        flags = {
            "is_exact": operand.is_exact and number != "0.5" and operator in "+*-",
            "is_positive": operand.is_positive and operator != "-",
        }
        if self.rng.random() < 0.5 or operator == "^":
            return operand.inside("(", f" {operator} {number})", **flags)
        return operand.inside(f"({number} {operator} ", **flags)

    def _comparison(self, depth: int) -> Expression:
        operator = self.rng.choice(("==", "!=", "<", "<=", ">", ">="))
        as_bool = self.rng.choice(("", "", " bool"))
        if self.rng.random() < 0.6:
            operand = self._vector(depth, exact=operator in ("==", "!="))
            number = self.rng.choice(("3", "20", "150") if operand.is_exact else ("0.0171", "0.513", "3.137", "71.77"))
            flags = {"is_exact": operand.is_exact or bool(as_bool), "is_positive": operand.is_positive or bool(as_bool)}
            if self.rng.random() < 0.7:
                return operand.inside("(", f" {operator}{as_bool} {number})", **flags)
            return operand.inside(f"({number} {operator}{as_bool} ", **flags)
        left, right = self._vector(depth, exact=True), self._vector(depth, exact=True)
        is_positive = bool(as_bool) or left.is_positive
        text = f"{operator}{as_bool}{self._matching()}"
        return _joined(left, text, right, is_exact=True, is_positive=is_positive)

    def _set(self, depth: int) -> Expression:
        left, right = self._vector(depth), self._vector(depth)
        operator = self.rng.choice(("and", "or", "unless"))
        is_exact = left.is_exact and (right.is_exact or operator != "or")
        is_positive = left.is_positive and (right.is_positive or operator != "or")
        text = f"{operator}{self._matching()}"
        return _joined(left, text, right, is_exact=is_exact, is_positive=is_positive)

    def _subquery(self, depth: int) -> Expression:
        step, span = self.rng.choice((60, 100, 300, 600)), self.rng.choice((300, 600, 1800))
        # The requests of Prometheus do not say at which moments it evaluates a subquery. They look like those of whole
        # windows if offsets of the selector and of the subquery, or moments between windows, cancel out.
        offset = self._offset()
        offsets = self.offsets if self.is_aligned and not offset else (600, 3600)
        operand = replace(self, step=step, is_aligned=True, offsets=offsets)._vector(depth)
        name = self.rng.choice(("sum", "avg", "min", "max", "count"))
        is_exact = name == "count" or (operand.is_exact and name != "avg")
        return Expression(
            f"{name}_over_time(({operand.here})[{span}s:{step}s]{offset})",
            f"{name}_over_time(({operand.prometheus})[{span * 1000 - 1}ms:{step}s]{offset})",
            is_exact=is_exact,
            is_positive=operand.is_positive or name == "count",
        )

    def _absent(self, depth: int) -> Expression:
        if self.rng.random() < 0.4:
            name = self.rng.choice(("fastest", "slowest", "none"))
            span, matchers, offset = self._range()
            return _of_samples("absent_over_time", name, matchers, span=span, offset=offset, is_exact=True)
        # The labels of ``absent(x)`` are those of the selector ``x``, which has another text for Prometheus.
        return self._vector(depth).inside("absent(0 + (", "))", is_exact=True, is_positive=True)


def _increased(name: str, span: int, matchers: str, offset: str, function: str = "increase") -> str:
    """Return the text for Prometheus of a total over a range that is absent if the range has no rows."""
    return f"({function}({name}{{{matchers}}}[{span}s]{offset}) > 0)"


def _total(function: str, name: str, span: int, matchers: str, offset: str, *, is_exact: bool = False) -> Expression:
    here = f"{function}({name}{{{matchers}}}[{span}s]{offset})"
    return Expression(here, f"({here} > 0)", is_exact=is_exact)


def _of_samples(
    function: str, name: str, matchers: str, *, span: int, offset: str, is_exact: bool = False
) -> Expression:
    """Return a function of the values of the windows that end in a range without its start."""
    selector = f"{name}{{{matchers}}}"
    return Expression(
        f"{function}({selector}[{span}s]{offset})",
        f"{function}({selector}[{span * 1000 - 1}ms]{offset})",
        is_exact=is_exact,
    )


def _joined(left: Expression, operator: str, right: Expression, *, is_exact: bool, is_positive: bool) -> Expression:
    return Expression(
        f"({left.here} {operator} {right.here})",
        f"({left.prometheus} {operator} {right.prometheus})",
        is_exact=is_exact,
        is_positive=is_positive,
    )
