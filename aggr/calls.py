"""The measure constructors of the built-in functions. Each returns a measure with one function."""

from __future__ import annotations

from aggr.call_by_name import measure_constructor_of
from aggr.functions import OWN
from aggr.registry import register_own

register_own(*OWN)
__all__: list[str] = []
for _function in OWN:
    _call = measure_constructor_of(_function)
    _call.__module__ = __name__
    _words = [_function.name, *_function.__dict__.get("aliases", ())]
    globals().update(dict.fromkeys(_words, _call))
    __all__ += _words
