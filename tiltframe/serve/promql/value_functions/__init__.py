"""Functions of PromQL that are computed from the values at each moment, one module per function.

The name of a module is the name of its function in PromQL. The module defines ``evaluate``, whose arguments and result
are objects of the class `Vector` or `Scalar` of `tiltframe.serve.promql.cells`. To add a function, add a module to this
folder (docs/prometheus.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pkgutil import iter_modules

from tiltframe.serve.promql.cells import Scalar, Vector

VALUE_FUNCTIONS: Mapping[str, Callable[..., Scalar | Vector]] = {
    module.name: import_module(f"{__name__}.{module.name}").evaluate for module in iter_modules(__path__)
}
