"""per: a map from each key to the results of other functions for the rows with this key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from aggr.extend import (
    EVENT_TIME,
    ORDERED,
    ExcludedCounts,
    Field,
    Function,
    Groups,
    InputTypes,
    Measure,
    State,
    Use,
    Values,
    from_description,
    input_rule,
    repeated,
)
from aggr.extend.arguments import checked_mapping, checked_name, checked_whole, nearest, shown
from aggr.extend.columns import Flags, has_order, order_keys
from aggr.extend.columns import compute as pc
from aggr.extend.lists import (
    DEFAULT_MAX,
    ERROR,
    NULL,
    SAMPLE,
    KeyedStates,
    check_beyond,
    check_max,
    first_of_each,
    lists_of,
)
from aggr.extend.states import Count

_ACTIONS = (ERROR, SAMPLE, NULL)


class Measures(dict[str, Measure]):
    """An immutable mapping of measures by name, sorted by name."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


@dataclass(frozen=True)
class MapState(State):
    """The state of `Per`: a map from up to ``max`` keys to one state of each measure.

    ``beyond`` is the action for a group with more keys: raise an error, keep a sample of the keys, or replace the map
    by null.
    """

    of: Measures
    max: int
    beyond: str

    name = "per"
    parameters: ClassVar[Mapping[str, pa.DataType]] = {"of": pa.string(), "max": pa.int32(), "beyond": pa.string()}

    @property
    def map(self) -> KeyedStates:
        """The field that maps the keys to the states of the measures."""
        return _keyed_states(self.of, self.max, self.beyond)

    @property
    def fields(self) -> Mapping[str, Field]:
        return {"map": self.map}

    def beyond_limit(self, states: pa.StructArray) -> Flags | None:
        return self.map.beyond_limit(states.field("map"))

    def excluded_counts(self, states: pa.StructArray) -> ExcludedCounts:
        return self.map.excluded_counts(states.field("map"))

    def parameter_columns(self, n: int) -> dict[str, pa.Array]:
        """Return the parameters for each state. The measures are stored as the JSON text of their descriptions."""
        descriptions = {name: measure.describe() for name, measure in self.of.items()}
        values = {"of": json.dumps(descriptions, ensure_ascii=False), "max": self.max, "beyond": self.beyond}
        return {name: repeated(name, values[name], dtype, n) for name, dtype in self.parameters.items()}

    def reduce_values(self, values: Values) -> Mapping[str, pa.Array]:
        keys = values.array
        if any(True for measure in self.of.values() for _ in _input_texts(measure)):
            keys = pc.struct_field(values.array, "key")
        grouped_keys = self.map.group(keys, values.groups)
        rows = values if grouped_keys.rows is None else values.filter(grouped_keys.rows)
        rows = Values(rows.array, grouped_keys.groups, rows.weights)
        shared_values: dict[object, Values] = {}
        states = []
        for measure in self.of.values():
            if measure.reads not in shared_values:
                shared_values[measure.reads] = _values_of(measure, rows)
            states.append(measure.function.reduce(shared_values[measure.reads]))
        return {"map": self.map.pack(grouped_keys, states)}


@dataclass(frozen=True)
class Per(Function):
    """Compute a map from each key to the results of other functions for the rows with this key.

    Rows whose key is null are skipped. Both zeros count as one key. All NaN count as one key, which is the greatest.

    Parameters
    ----------
    of : dict of name -> measure
        The measures to compute for each key; by default ``{"n": count()}``. The state depends on this parameter.
        Measures must not have weights of their own, because the weight of the map applies to all of them.
    max : int
        The maximum number of keys per group, for windows of any length. The state depends on this parameter and on
        ``beyond``.
    beyond : "error", "sample" or "null"
        The action if a group has more than ``max`` keys: raise an error, keep a sample of the keys, or return null. A
        sample contains the ``max`` keys with the smallest hashes, each with the results of all its rows. ``share`` in
        the result is the estimated fraction of all keys that the sample contains. A sum over the keys of the
        sample, divided by ``share``, is an unbiased estimate of the sum over all keys, with a standard error of about
        ``sqrt((1 / share - 1) Σx²)`` over all keys. With "null", the result of such a group remains null in every
        merge, and its keys are not stored.
    top : int, optional
        The number of keys to list. The keys with the greatest values of the result ``by`` are listed, with the
        greatest value first. Among equal values, the smallest keys come first. ``top`` and ``by`` affect only results,
        not states.
    by : str, optional
        The name of the result by which keys are ranked. It is required with ``top`` if there are several results.

    Raises
    ------
    ValueError
        If ``of`` is empty or contains a measure with a weight of its own, if ``max`` or ``top`` is not a whole number
        of at least 1, if ``beyond`` is not an allowed value, or if ``by`` is not the name of a result.

    Examples
    --------
    >>> from aggr import count, dds, per
    >>> per("host", of={"n": count(), "p": dds("ms")}, max=1000, top=10, by="n")
    per('host', of={'n': count(), 'p': dds('ms')}, max=1000, top=10, by='n')
    """

    of: Mapping[str, Measure] | None = None
    max: int = DEFAULT_MAX
    beyond: str = ERROR
    top: int | None = None
    by: str | None = None

    name = "per"
    takes: ClassVar[InputTypes | Mapping[str, InputTypes]] = ORDERED
    keeps = "each key, with the states of its rows"
    returns = (
        "record: share, the fraction of all keys that the state contains; entries, a list of records of a key and its "
        "results, ordered by key, or with top by the result"
    )
    guarantee = (
        "the guarantee of each function, for up to max keys; above that number, for a sample of the keys whose share "
        "is reported"
    )
    inputs = ("key",)
    takes_weights = True

    def __post_init__(self) -> None:
        measures = _checked_measures(self.of)
        check_max(self.max)
        check_beyond(self.beyond, _ACTIONS)
        if self.top is not None:
            checked_whole(self.top, "top, the number of keys that are listed,", 1)
            if self.by is None and len(measures) > 1:
                raise ValueError(
                    f"top= needs by=, the name of the result that ranks the keys: one of {', '.join(measures)}"
                )
        if self.by is not None and not (isinstance(self.by, str) and self.by in measures):
            raise ValueError(
                f"by= must be the name of a result; got {shown(self.by)}; {nearest(str(self.by), measures)}"
            )
        object.__setattr__(self, "of", measures)
        further_inputs = tuple(map(_input_name, self.further_columns))
        further_rules = {role: self._rule_of(role) for role in further_inputs}
        object.__setattr__(self, "inputs", ("key", *further_inputs))
        object.__setattr__(self, "takes", {"key": ORDERED, **further_rules})
        object.__setattr__(self, "takes_weights", all(m.function.takes_weights for m in measures.values()))

    @property
    def further_columns(self) -> tuple[str | None, ...]:
        return tuple(dict.fromkeys(text for measure in self._measures.values() for text in _input_texts(measure)))

    @property
    def _measures(self) -> Measures:
        assert isinstance(self.of, Measures)
        return self.of

    @property
    def _map(self) -> KeyedStates:
        return _keyed_states(self._measures, self.max, self.beyond)

    @property
    def own_state(self) -> MapState:
        return MapState(of_states(self._measures), self.max, self.beyond)

    def _rule_of(self, name: str) -> InputTypes:
        """Return the rule for the types of the input ``name`` of the measures. The rule leaves the check of the type to
        the measures that use the input.

        If measures use the input in several ways, ``text_use`` of the rule is the first such way in the order
        `Use.KEEP`, `Use.ORDER`, `Use.NUMBER`, `Use.ANY`.
        """
        uses = {
            use
            for measure in self._measures.values()
            for text, use in (*measure.input_uses(), *(() if measure.where is None else ((measure.where, Use.ANY),)))
            if _input_name(text) == name
        }
        use = next((use for use in (Use.KEEP, Use.ORDER, Use.NUMBER) if use in uses), Use.ANY)
        return replace(ORDERED, text_use=use)

    def check_input(self, dtype: pa.DataType) -> None:
        has_several_inputs = len(self.inputs) > 1
        input_rule(self, "key").check(self.name, dtype.field("key").type if has_several_inputs else dtype)
        for measure in self._measures.values():
            if measure.where and not pa.types.is_boolean(kind := dtype.field(_input_name(measure.where)).type):
                raise TypeError(
                    f"where={measure.where!r} has values of type {kind}, and must be true or false; write a condition, "
                    "such as 'status >= 500'"
                )

    def drop_null(self, values: Values) -> Values:
        """Return the rows whose key is not null. Each measure removes the nulls of its own inputs."""
        if len(self.inputs) == 1:
            return values.present
        keys = values.array.field("key")
        is_present = pc.and_(values.array.is_valid(), keys.is_valid())
        return values.filter(is_present.to_numpy(zero_copy_only=False)) if keys.null_count else values

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        maps = states.field("map")
        results, owners = self._map.finish(maps)
        if self.top is not None:
            results, owners = self._top_entries(results, owners, self.top)
        lists = lists_of(results, owners.counts())
        return pa.StructArray.from_arrays([pa.array(self._map.shares(maps)), lists], names=["share", "entries"])

    def _top_entries(self, results: pa.StructArray, owners: Groups, top: int) -> tuple[pa.StructArray, Groups]:
        """Return, for each map, the ``top`` entries with the greatest values of the result called ``self.by``, in
        descending order, with null last. The second result has the map of each entry.
        """
        name = self.by or next(iter(self._measures))
        ranking = results.field(name)
        if not has_order(ranking.type):
            raise ValueError(
                f"top= cannot rank the keys by the result {name!r}, because its type, {shown(ranking.type)}, has no "
                "order; pass the name of another result as by="
            )
        is_valid = ranking.is_valid().to_numpy(zero_copy_only=False)
        ranks = np.zeros(len(ranking), np.int64)
        ranks[is_valid] = order_keys(ranking.drop_null())
        order = np.lexsort((~ranks, ~is_valid, owners.ids))  # lexsort is stable: equal ranks stay in the order of keys
        order = first_of_each(order, owners, top)
        return results.take(pa.array(order)), Groups(owners.ids[order], owners.n)


def _checked_measures(measures_by_name: Any) -> Measures:
    """Return checked measures as a dict, sorted by name.

    ``measures_by_name`` is a dict of measures or of their descriptions, or the JSON text that a state contains. None
    stands for a single measure, ``count()``.
    """
    if measures_by_name is None:
        measures_by_name = {"n": Measure(Count(), None)}
    if isinstance(measures_by_name, str):
        try:
            measures_by_name = json.loads(measures_by_name)
        except ValueError:
            example = "{'n': count()}"
            received = shown(measures_by_name)
            raise ValueError(f"of= must be a dict of measures such as {example}; got {received}") from None
    measures = {}
    for name, part in sorted(checked_mapping(measures_by_name, "of=", "measures by name").items()):
        if checked_name(name, "a result in of=") == "key":
            raise ValueError(
                "'key' in of= cannot be the name of a result, because the column of the key has this name; choose "
                "another name"
            )
        measure = from_description(part) if isinstance(part, dict) else part
        if not isinstance(measure, Measure):
            raise ValueError(
                f"of= must be a dict of measures such as {{'n': count()}}; got {shown(measure)} for {shown(name)}"
            )
        if measure.weight is not None:
            raise ValueError(
                f"{shown(name)} in of= has its own weight, {shown(measure.weight)}; pass weight= to per instead"
            )
        measures[name] = measure
    if not measures:
        raise ValueError("of= is empty; pass at least one measure, such as {'n': count()}")
    return Measures(measures)


def of_states(measures: Measures) -> Measures:
    """Return measures with the same states, but with the defaults of the parameters that affect only results."""
    return Measures({name: measure.of_states() for name, measure in measures.items()})


def _keyed_states(measures: Measures, max_keys: int, beyond: str) -> KeyedStates:
    functions = tuple((name, measure.function) for name, measure in measures.items())
    return KeyedStates(functions, max_keys, beyond)


def _input_texts(measure: Measure) -> Iterator[str | None]:
    """Yield the text of each input of a measure, and then the text of the measure's condition, if it has one.

    The text of an input is a column or an expression. If an input is the event time of the frame, None is yielded
    instead. A measure such as count may have no inputs.
    """
    if measure.column is not None:
        yield from (measure.column, *measure.others)
    if measure.where is not None:
        yield measure.where


def _input_name(text: str | None) -> str:
    return EVENT_TIME if text is None else f"of.{text}"


def _values_of(measure: Measure, rows: Values) -> Values:
    """Return the inputs of a measure for the rows that meet the measure's condition. ``rows`` contains the inputs of
    all measures.
    """
    if measure.where is not None:
        condition = pc.fill_null(pc.struct_field(rows.array, _input_name(measure.where)), False)
        rows = rows.filter(condition.to_numpy(zero_copy_only=False))
    if measure.column is None:
        return Values(pa.array(rows.groups.ids), rows.groups, rows.weights)
    texts = (measure.column, *measure.others)
    columns = [pc.struct_field(rows.array, _input_name(text)) for text in texts]
    inputs = measure.function.inputs
    array = columns[0] if len(inputs) == 1 else pa.StructArray.from_arrays(columns, names=list(inputs))
    return Values(array, rows.groups, rows.weights)
