"""The catalogue: each function with its declarations, and with the figures of the last benchmark of all functions."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from aggr.call_by_name import caller
from aggr.function import Function, input_rule
from aggr.parameters import default_of, parameter_text
from aggr.registry import aliases, get, names
from aggr.tables.accessors import accessors_of

MEASURED = Path(__file__).parent / "bench" / "measured.json"  # the file that python -m benchmarks.functions writes


@dataclass(frozen=True)
class Figures:
    """The figures of a built-in function, measured by ``python -m benchmarks.functions``.

    Parameters
    ----------
    call : str
        The call that was measured.
    reduce_ns_per_row, merge_ns_per_state, finish_ns_per_state : float
        The time in nanoseconds, for 1,000 groups on one core.
    bytes : mapping of str to int or None
        The size of one state in memory, in bytes, by the number of its rows as text. None if the function rejects this
        number of rows.
    worst_relative_error : float or None
        The largest error relative to the exact result, for lognormal values. None if no exact result is known.
    """

    call: str
    reduce_ns_per_row: float
    merge_ns_per_state: float
    finish_ns_per_state: float
    bytes: Mapping[str, int | None]
    worst_relative_error: float | None


@dataclass(frozen=True)
class Entry:
    """The catalogue's entry for one function.

    Parameters
    ----------
    name : str
        The name of the function.
    aliases : sequence of str
        Its other names.
    signature, summary : str
        The signature of its measure constructor, and the first paragraph of its docstring.
    inputs : mapping of str to str
        The names of its inputs, each with a sentence about the types that it accepts.
    parameters : mapping of str to str
        The parameters with their defaults, in the syntax of calls.
    state_parameters : sequence of str
        The parameters on which the state depends; the others affect only results.
    state : mapping of str to str
        The fields of the state, and how each is merged. Functions with the same ``state_name`` share a state.
    state_name : str
        The name of the state.
    keeps, returns, guarantee : str
        Short descriptions of the content of the state, of the result, and of its accuracy.
    is_mergeable, is_subtractable : bool
        Whether states can be merged (always True), and whether rows can be subtracted from states.
    takes_weights, reads_neighbours : bool
        Whether a row may represent several rows, and whether a result can also use points of the previous and the next
        window.
    accessors : sequence of str
        Other results that can be read from the state, such as ``quantile`` and ``rank``.
    package : str
        The top-level package that defines the function.
    figures : Figures or None
        None for the functions of other packages.
    """

    name: str
    aliases: Sequence[str]
    signature: str
    summary: str
    inputs: Mapping[str, str]
    parameters: Mapping[str, str]
    state_parameters: Sequence[str]
    state: Mapping[str, str]
    state_name: str
    keeps: str
    returns: str
    guarantee: str
    is_mergeable: bool
    is_subtractable: bool
    takes_weights: bool
    reads_neighbours: bool
    accessors: Sequence[str]
    package: str
    figures: Figures | None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as plain data that JSON can represent."""
        return asdict(self)


def catalogue(*functions: str) -> list[Entry]:
    """List functions with their declarations and measured figures.

    Parameters
    ----------
    functions : str
        Names or aliases; by default all functions, including those of installed packages.

    Returns
    -------
    list of Entry
        The entries in the order of the arguments, or sorted by name.

    Raises
    ------
    UnknownFunction
        For a name that is not registered.

    Examples
    --------
    >>> [entry] = catalogue("dds")
    >>> entry.is_subtractable, entry.takes_weights, "quantile" in entry.accessors
    (True, True, True)
    >>> entry.parameters["relative_accuracy"], entry.state_parameters
    ('0.01', ['relative_accuracy', 'max_bins'])
    """
    return [_entry(get(name)) for name in functions or names()]


def _entry(function: type[Function]) -> Entry:
    """Return the entry of a function. It describes the state for the default values of the parameters."""
    default = function()
    parameters = [parameter for parameter in fields(function) if parameter.init]
    shaping = {*default.own_state.parameters, *default.own_state.optional_parameters}
    return Entry(
        name=function.name,
        aliases=[alias for alias, name in aliases().items() if name == function.name],
        signature=f"{function.name}{_signature(function.name)}",
        summary=inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].replace("\n", " "),
        inputs={name: input_rule(function, name).sentence for name in function.inputs},
        parameters={parameter.name: parameter_text(default_of(parameter)) for parameter in parameters},
        state_parameters=[parameter.name for parameter in parameters if parameter.name in shaping],
        state={name: field.description for name, field in default.own_state.fields.items()},
        state_name=default.own_state.name,
        keeps=function.keeps,
        returns=function.returns,
        guarantee=function.guarantee,
        is_mergeable=True,
        is_subtractable=bool(default.own_state.counted_by),
        takes_weights=function.takes_weights,
        reads_neighbours=function.reads_neighbours,
        accessors=sorted(accessors_of(function)),
        package=function.__module__.partition(".")[0],
        figures=_figures().get(function.name) if function.__module__.startswith("aggr.") else None,
    )


def _signature(name: str) -> inspect.Signature:
    parameters = inspect.signature(caller(name)).parameters.values()
    return inspect.Signature([parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters])


@cache
def _figures() -> Mapping[str, Figures]:
    if not MEASURED.exists():
        return {}
    measured = json.loads(MEASURED.read_text(encoding="utf8"))
    return {name: Figures(**figures) for name, figures in measured["functions"].items()}
