"""Functions of a store's frame that do not belong to ``aggr``. Another process may lack these functions, so they are
pickled together with the store, and registered in the process that unpickles the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter

from aggr import registry
from aggr.function import Function
from aggr.measure import Measure
from tiltframe.frame import TiltFrame

FunctionClasses = tuple[type[Function], ...]


def carried_functions(frame: TiltFrame) -> FunctionClasses:
    """Return the classes of a frame's functions that are not part of ``aggr``. Functions inside other functions, such
    as those in the parameter ``of`` of ``per``, are included.
    """
    classes = {type(function) for measure in frame.measures.values() for function in _functions_in(measure)}
    outside_classes = [
        function_class for function_class in classes if function_class.__module__.partition(".")[0] != "aggr"
    ]
    return tuple(sorted(outside_classes, key=attrgetter("name")))


def register_missing(function_classes: Sequence[type[Function]]) -> None:
    """Register each function whose name is not registered yet."""
    for function_class in function_classes:
        try:
            registry.get(function_class.name)
        except registry.UnknownFunction:
            registry.register(function_class)


def _functions_in(measure: Measure) -> Iterator[Function]:
    """Yield the function of a measure, and the functions of the measures in its parameters."""
    yield measure.function
    for field in fields(measure.function):
        value = getattr(measure.function, field.name)
        if isinstance(value, Mapping):
            for inner in value.values():
                if isinstance(inner, Measure):
                    yield from _functions_in(inner)
