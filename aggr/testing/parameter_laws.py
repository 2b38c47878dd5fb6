"""The law of other values of parameters: results are computed and compared for each of them."""

from __future__ import annotations

from dataclasses import fields, replace

from aggr.testing.cases import Case
from aggr.testing.harness import LawBroken
from aggr.testing.oracles import compare_with_exact
from aggr.testing.parameter_values import variants
from aggr.testing.state_laws import isolated_results


def other_parameters(case: Case) -> None:
    """With another value of a parameter, results also depend only on the state, and agree with ``exact``.

    One parameter and one of its other values are drawn, because each value costs as much as a case.
    """
    names = [parameter.name for parameter in fields(case.function) if parameter.init]
    if not names:
        return
    name = names[int(case.rng.integers(len(names)))]
    other_values = variants(case.function, name, case.parameters)
    if not other_values:
        return
    value, function = other_values[int(case.rng.integers(len(other_values)))]
    try:
        variant = replace(case, function=function)
        isolated_results(variant)
        compare_with_exact(variant)
    except LawBroken as broken:
        raise LawBroken(f"with {name}={value!r}: {broken}") from None
    except (ValueError, OverflowError):
        return  # the function does not accept the values of the case with this parameter
    except Exception as error:
        if value in list(case.parameters.get(name, ())):
            raise LawBroken(
                f"with {name}={value!r}, it raises {type(error).__name__}: {error}; reject a value of a parameter by "
                "ValueError, when the function is created"
            ) from error
