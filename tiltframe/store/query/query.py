"""Queries as objects. A `Query` has all arguments of a query of a store, checks them, and is converted to and from
JSON.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from aggr import Measure, from_description, sql
from aggr.arguments import checked_mapping, checked_names, checked_truth, checked_whole, is_name, nearest, shown
from aggr.duration import read_length
from tiltframe.parameter_names import argument_text, parameter_text
from tiltframe.store.query.derived_keys import DerivedKey, checked_keys, key_from_description
from tiltframe.time_range import checked_range_text, moment_text
from windows import TimeWindow, as_window, check_timezone, read_window

P = ParamSpec("P")
T = TypeVar("T")
Per: TypeAlias = "str | TimeWindow | Sequence[str | TimeWindow] | None"
FILLS = ("null", "zero", "previous", "linear", "zero_gaps", "previous_gaps", "linear_gaps")
Measures: TypeAlias = "Sequence[str] | Mapping[str, Measure | str] | None"


@dataclass(frozen=True)
class Query:
    """The arguments of a query of a store. They are checked on creation, except for names that depend on the store.

    Parameters
    ----------
    per : str or window, or a list, optional
        The windows of the results: a level; a coarser window that consists of windows of a level, such as ``1d`` of
        ``1h``; ``hopping("1h", "10m")``; or None or ``all`` for one result over the whole range. For a list, the
        results of each kind of window follow each other. The column ``level`` distinguishes them.
    within : (start, end), str or date, optional
        The range of window starts, end exclusive, as datetimes, ISO 8601 text or Unix milliseconds. One end may be
        None, or omitted in text, ``2026-03-28,``. Other forms are a day, month or year, such as ``2026-03-28`` or
        ``2026-03``; a relative time such as ``-24h``, for the range from this time until now; and a pattern such as
        ``2018-01-** **:**:**``. Times without an offset are in ``timezone``.
    where : str, optional
        An SQL condition on the keys.
    measures : names, or name -> measure or expression, optional
        The measures of the results. New measures are computed from existing states, such as other quantiles of a stored
        sketch. SQL expressions are computed from results, ``{"rate": "errors / requests"}``. By default all results of
        the frame, except expressions that read a key which the query leaves out.
    keys : names, or name -> name or derived key, optional
        The keys of the results, or fields of keys, such as ``tags.host``; states are merged over the other keys.
        ``{"site": lookup("device", table)}`` derives a key from a table; see `tiltframe.lookup`.
    fill : str or bool
        How windows without rows are added, for each key that has rows in the range. The column ``filled`` marks the
        added windows. ``null``, or True, adds nulls, with 0 for counts. ``zero`` adds 0 for each number. ``previous``
        repeats the previous results of the key. ``linear`` interpolates numbers between the results before and after,
        and rounds whole numbers. ``zero``, ``previous`` and ``linear`` also replace null results in windows with rows.
        ``zero_gaps``, ``previous_gaps`` and ``linear_gaps`` fill only the added windows. Null results in windows with
        rows are kept, and count as values from which the added windows are filled.
    order_by : str or list of str, optional
        The order of the results: names of results, ``latency_p99 desc`` or ``latency.quantiles.0.99``, or expressions
        of results, ``errors / requests desc``. By default, results are ordered by window, then keys.
    limit : int, optional
        The maximum number of rows.
    now : moment, optional
        The time that the column ``partial`` and relative times such as ``-24h`` use; by default the current time.
    flat : bool
        Whether to return the fields of records as plain columns: ``latency_count``, ``latency_p50``, ``latency_p99``.
    having : str, optional
        An SQL condition on the results, with the names that they have if ``flat`` is true: ``requests > 100 AND
        latency_p99 > 0.5``.
    points : int, optional
        The maximum number of windows in the range, for plots, instead of ``per``. The windows are those of the finest
        level that has at most this number of windows in the range, and whose windows in the range have not expired. If
        even the coarsest level has more windows, the windows are hours, days, weeks, months, quarters or years.
    timezone : str, optional
        The time zone of ``within``, ``now`` and times in conditions, of the windows in ``per`` and ``points``, and of
        starts and ends in results. For example, ``1d`` is a day in this zone; it is merged from the coarsest level
        whose windows do not cross the start of such a day. By default the frame's zone.
    latest : bool
        Whether to return only the last window of each key in the range. ``having`` is applied afterwards.
    closed : bool
        Whether to leave out windows for which ``partial`` is true: windows that end after ``now``, and windows that
        have partly expired. Windows that a stream into the store may still change are left out as well: windows that
        end after the stream's watermark minus its delay and lateness. If there are several streams, the earliest of
        their times counts. Windows are left out before ``latest`` selects one.
    edges : str, optional
        The maximum distance of two points, as a length of time, for measures that combine points (`time_weighted_avg`,
        `integral`, `duration_in`, `rate`, `increase`, `delta`, `resets`). A point is the value of a row at its time. If
        two consecutive points of a key lie in different windows and are at most this far apart, the time between the
        points is divided at the starts and ends of the windows, and each window counts its share. The points need not
        lie in ``within``.
    running : bool
        Whether each window also contains the earlier windows of its key in the range: a count is then the number of all
        rows so far, and a quantile is computed from all rows so far. `closed`, `latest` and `having` select windows
        afterwards.

    Raises
    ------
    ValueError
        If an argument is invalid. The store is not read for this check.

    Examples
    --------
    >>> query = Query("1h", within="2026-03", measures={"rate": "errors / requests"}, order_by="rate desc", limit=10)
    >>> Query.from_json(query.to_json()) == query
    True
    """

    per: Per = None
    within: Any = None
    where: str | None = None
    measures: Measures = None
    keys: Sequence[str] | Mapping[str, str | DerivedKey] | None = None
    fill: str | bool = False
    order_by: str | Sequence[str] = ()
    limit: int | None = None
    now: Any = None
    flat: bool = False
    having: str | None = None
    points: int | None = None
    timezone: str | None = None
    latest: bool = False
    closed: bool = False
    edges: str | None = None
    running: bool = False

    def __post_init__(self) -> None:
        """Check all members, and convert each to a canonical form."""
        checked: dict[str, Any] = {
            "fill": _checked_fill(self.fill),
            **{
                name: checked_truth(getattr(self, name), parameter_text(name))
                for name in ("flat", "latest", "closed", "running")
            },
        }
        if self.fill and self.latest:
            raise ValueError(
                f"{parameter_text('fill')} adds windows without events, and {parameter_text('latest')} selects only "
                "windows with events; leave out one of them"
            )
        if self.edges is not None:
            read_length(self.edges, f"length of {parameter_text('edges')}")
            if self.running:
                raise ValueError(
                    f"{argument_text('edges', self.edges)} and {parameter_text('running')} cannot be used together, "
                    "because running results merge several windows; leave out one of them"
                )
        if self.timezone is not None:
            object.__setattr__(self, "timezone", check_timezone(self.timezone))
        if self.now is not None:
            checked["now"] = moment_text(self.now)
        if self.within is not None:
            checked["within"] = checked_range_text(self.within, self.timezone)
        checked["per"] = self._checked_per()
        _check_condition(None, "host = 'a'", self.where)
        _check_condition("having", "requests > 100", self.having)
        if self.measures is not None:
            checked["measures"] = _checked_measures(self.measures)
        if self.keys is not None:
            checked["keys"] = _checked_keys(self.keys)
        order_by = [self.order_by] if isinstance(self.order_by, str) else self.order_by
        checked["order_by"] = checked_names(order_by, parameter_text("order_by"), "columns to order by")
        if self.limit is not None:
            checked["limit"] = checked_whole(self.limit, parameter_text("limit"))
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        _ = self.order  # The property `order` raises an error if a name occurs twice.

    def _checked_per(self) -> Per:
        if self.points is not None:
            object.__setattr__(self, "points", checked_whole(self.points, parameter_text("points"), 1))
            if self.per is not None:
                raise ValueError(
                    f"{argument_text('per', self.per)} and {argument_text('points', self.points)} contradict each "
                    "other; pass only one of them"
                )
        per_values = tuple(None if window is None else self._name_or_window(window) for window in self.sizes)
        if not per_values:
            raise ValueError(f"{parameter_text('per')} must name at least one level; got an empty list")
        return per_values if len(per_values) > 1 else per_values[0]  # type: ignore[return-value]

    def _name_or_window(self, per: str | TimeWindow) -> str | TimeWindow:
        """Return the name of a window, if `windows.read_window` reads this name in the zone of the query as the same
        window. Otherwise return the window itself.
        """
        window = as_window(per, self.timezone or "UTC")
        is_name_enough = window.timezone in (None, self.timezone) and _is_read_as(window, self.timezone)
        return window.name if is_name_enough or isinstance(per, str) else window

    @property
    def sizes(self) -> tuple[Any, ...]:
        """The windows of the results, each as text, a window, or None."""
        return tuple(self.per) if isinstance(self.per, list | tuple) else (self.per,)

    @property
    def derived_keys(self) -> dict[str, DerivedKey]:
        """The keys of the results that are computed from keys of the frame."""
        keys = self.keys if isinstance(self.keys, Mapping) else {}
        return {name: key for name, key in keys.items() if isinstance(key, DerivedKey)}

    @property
    def order(self) -> list[tuple[str, str]]:
        """The order of results: pairs of an expression and ``ascending`` or ``descending``.

        >>> Query(order_by=["latency.quantiles.0.99 desc", "n"]).order
        [('latency.quantiles.0.99', 'descending'), ('n', 'ascending')]
        """
        order: dict[str, str] = {}
        for text in self.order_by:
            name, _, direction = text.strip().rpartition(" ")
            if not name or direction.lower() not in ("asc", "desc"):
                name = text.strip()
                direction = "asc"
            if name.strip() in order:
                raise ValueError(f"{parameter_text('order_by')} contains {shown(name.strip())} twice; name it once")
            order[name.strip()] = "descending" if direction.lower() == "desc" else "ascending"
        return list(order.items())

    def describe(self) -> dict[str, Any]:
        """Return the query as data that JSON can represent, which `from_dict` reads. Arguments that have their defaults
        are left out.

        Raise ``ValueError`` for windows and times that cannot be written as text.
        """
        write: dict[str, Callable[[Any], Any]] = {
            "per": self._described_per,
            "within": self._described_within,
            "measures": self._described_measures,
            "keys": self._described_keys,
        }
        described = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if value != f.default:
                value = write[f.name](value) if f.name in write else value
                described[f.name] = list(value) if isinstance(value, tuple) else value
        return described

    def _described_per(self, per: Any) -> Any:
        if isinstance(per, tuple):
            return [self._described_per(window) for window in per]
        if per is None or isinstance(per, str):
            return per
        if not _is_read_as(per, per.timezone):
            raise ValueError(
                f"windows of {per.name} cannot be written as text, so the query cannot be stored; run it in Python"
            )
        return {"window": per.name, "timezone": per.timezone}

    @staticmethod
    def _described_within(within: Any) -> str:
        if isinstance(within, str):
            return within
        raise ValueError(
            f"the range {shown(within)} has a time with fold=1, which cannot be written as text; use a time with an "
            "offset"
        )

    @staticmethod
    def _described_measures(measures: Mapping[str, Measure | str]) -> Any:
        if all(name == text for name, text in measures.items()):
            return list(measures)
        return {name: m if isinstance(m, str) else m.describe() for name, m in measures.items()}

    @staticmethod
    def _described_keys(keys: Any) -> Any:
        if not isinstance(keys, Mapping):
            return keys
        return {name: key.describe() if isinstance(key, DerivedKey) else key for name, key in keys.items()}

    def to_json(self) -> str:
        """Return the query as JSON text, which `from_json` reads."""
        return json.dumps(self.describe(), ensure_ascii=False)

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Query:
        """Return the query that a description defines.

        Parameters
        ----------
        described : mapping
            Plain data from `describe`; unknown members raise an error.

        Returns
        -------
        Query

        Raises
        ------
        ValueError
            If a member does not exist or cannot be read; the message names it.
        """
        members = dict(checked_mapping(described, "a query", "parameters by name"))
        names = [f.name for f in fields(cls)]
        for name in members:
            if name not in names:
                raise ValueError(f"a query has no parameter {shown(name)}; {nearest(str(name), names)}")
        per = members.get("per")
        members["per"] = [_read_per(window) for window in per] if isinstance(per, list) else _read_per(per)
        if isinstance(members.get("measures"), Mapping):
            members["measures"] = {name: _read_measure(name, measure) for name, measure in members["measures"].items()}
        if isinstance(members.get("keys"), Mapping):
            members["keys"] = {name: key_from_description(key) for name, key in members["keys"].items()}
        defaults = {f.name: f.default for f in fields(cls) if f.default is not MISSING}
        return cls(**{name: defaults[name] if value is None else value for name, value in members.items()})

    @classmethod
    def from_json(cls, text: str | bytes) -> Query:
        """Return the query that a JSON text describes.

        Parameters
        ----------
        text : str or bytes
            A JSON object like the result of `to_json`. Every member is optional.

        Returns
        -------
        Query

        Raises
        ------
        ValueError
            If the text is not JSON, or for the same reasons as `from_dict`.

        Examples
        --------
        >>> Query.from_json('{"per": "1h", "limits": 5}')
        Traceback (most recent call last):
        ValueError: a query has no parameter 'limits'; did you mean 'limit'?
        """
        try:
            described = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            raise ValueError(f'cannot read the query {shown(text)} as JSON; write an object: {{"per": "1h"}}') from None
        return cls.from_dict(described)


def _with_name_suggestions(init: Callable[..., None]) -> Callable[..., None]:
    """Return an initialiser whose error for an unknown argument suggests the most similar name."""

    @wraps(init)
    def initialise(self: Query, /, *args: Any, **kwargs: Any) -> None:
        for name in kwargs:
            if name not in Query.__dataclass_fields__:
                raise TypeError(f"a query has no parameter {shown(name)}; {nearest(name, Query.__dataclass_fields__)}")
        init(self, *args, **kwargs)

    return initialise


Query.__init__ = _with_name_suggestions(Query.__init__)  # type: ignore[method-assign]


def with_query_parameters(
    make: Callable[P, Query],
) -> Callable[[Callable[[Any, Query], T]], Callable[Concatenate[Any, P], T]]:
    """Return a decorator for methods with one parameter, a `Query`. The decorated method has the parameters of
    ``make``, such as those of `Query`. The decorated method passes its arguments to ``make``, and then calls the
    original method with the query that ``make`` returns.
    """

    def take_query(method: Callable[[Any, Query], T]) -> Callable[Concatenate[Any, P], T]:
        @wraps(method)
        def ask(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return method(self, make(*args, **kwargs))

        signature = inspect.signature(make)
        self_parameter = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        returns = inspect.signature(method).return_annotation
        parameters = [self_parameter, *signature.parameters.values()]
        ask.__signature__ = signature.replace(parameters=parameters, return_annotation=returns)  # type: ignore[attr-defined]
        return ask

    return take_query


def _checked_keys(keys: Any) -> Any:
    if isinstance(keys, Mapping):
        keys = checked_keys(keys)
        if any(isinstance(key, DerivedKey) for key in keys.values()):
            return keys
        keys = list(keys)
    return checked_names(keys, parameter_text("keys"))


def _checked_fill(fill: object) -> str | bool:
    if not isinstance(fill, str):
        return "null" if checked_truth(fill, parameter_text("fill")) else False
    if fill not in FILLS:
        raise ValueError(
            f"{parameter_text('fill')} must be True or False, or one of {', '.join(FILLS)}; got {shown(fill)}"
        )
    return fill


def _check_condition(name: str | None, example: str, condition: object) -> None:
    if condition is None:
        return
    if not is_name(condition):
        kind = "text" if name is None else "a condition on results"
        what = "a condition" if name is None else parameter_text(name)
        raise ValueError(f"{what} must be {kind}, such as {example!r}; got {shown(condition)}")
    sql.columns_of(str(condition))


def _checked_measures(measures: Any) -> dict[str, Measure | str]:
    if not isinstance(measures, Mapping):
        measures = {
            name: name
            for name in checked_names(measures, parameter_text("measures"), "names, or a dict of new ones by name")
        }
    if not measures:
        raise ValueError(
            f"{parameter_text('measures')} is empty; name at least one measure, or leave out "
            f"{parameter_text('measures')} for all of them"
        )
    for name, measure in measures.items():
        if not isinstance(measure, Measure | str):
            raise ValueError(
                f"cannot compute {shown(name)} from {shown(measure)}; functions of aggr create measures, such as "
                "aggr.sum('x'), and expressions of results are text, such as 'errors / requests'"
            )
    return dict(measures)


def _read_per(described: Any) -> Any:
    if not isinstance(described, Mapping):
        return described
    if described.keys() != {"window", "timezone"} or not all(isinstance(text, str) for text in described.values()):
        form = '{"window": "1d", "timezone": "UTC"}'
        raise ValueError(f"a window in the description of a query must have the form {form}; got {shown(described)}")
    return read_window(described["window"], described["timezone"])


def _read_measure(name: str, described: Any) -> Measure | str:
    """Return the measure that a result of `aggr.Measure.describe` defines. An expression, which is text, and a measure
    are returned unchanged.
    """
    if isinstance(described, Measure | str):
        return described
    try:
        return from_description(described)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"cannot read {shown(described)} as the measure {shown(name)}: {error}; write it as aggr.Measure.describe "
            'returns it, such as {"function": "sum", "column": "bytes"}'
        ) from None


def _is_read_as(window: TimeWindow, timezone: str | None) -> bool:
    try:
        return read_window(window.name, timezone or "UTC") == window
    except ValueError:
        return False
