"""aggr/calls.pyi and spark_udaf/functions.pyi have the signatures of all registered functions, which editors show.

python -m tests.contrib.test_function_signatures        writes these files
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import aggr
from aggr.registry import aliases

ROOT = Path(__file__).parents[2]
CALLS, FILE = ROOT / "aggr" / "calls.pyi", ROOT / "spark_udaf" / "functions.pyi"
CALLS_HEAD = '''"""Written by `python -m tests.contrib.test_function_signatures`, from the registry."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from aggr.measure import Measure

'''
HEAD = '''"""Written by `python -m tests.contrib.test_function_signatures`, from the registry."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType

from aggr.measure import Measure
'''


def written() -> str:
    """Write the functions of this package as a module and as methods of what `of` gives."""
    from spark_udaf.udaf.call import signature

    own = [name for name in aggr.names() if aggr.get(name).__module__.startswith("aggr.")]
    lines = ["class Functions:", "    def __init__(self, df: DataFrame) -> None: ..."]
    for name in own:
        lines += ["    @staticmethod", f"    def {name}{_plain(signature(name))}: ..."]
    lines += ["    def __getattr__(self, name: str) -> Callable[..., Column]: ..."]
    lines += ["", "def of(df: DataFrame) -> Functions: ..."]
    lines += [f"def {name}{_plain(signature(name))}: ..." for name in own]
    lines += ["def __getattr__(name: str) -> Callable[..., Column]: ..."]
    return HEAD + "\n" + "\n".join(lines) + "\n"


def written_calls() -> str:
    """Write the calls of this package, under all of their names."""
    own = [*aggr.names(), *aliases()]
    lines = [
        f"def {name}{_plain(inspect.signature(aggr.caller(name)), 'Measure')}: ..."
        for name in sorted(own)
        if aggr.get(name).__module__.startswith("aggr.")
    ]
    return CALLS_HEAD + "\n".join(lines) + "\n"


def _plain(signature: inspect.Signature, returns: str = "Column") -> str:
    """Write a signature without quotes around its annotations."""
    parameters = [
        parameter.replace(annotation=_Bare(str(parameter.annotation))) for parameter in signature.parameters.values()
    ]
    return str(signature.replace(parameters=parameters, return_annotation=_Bare(returns)))


class _Bare(str):
    """Text that is written as it stands."""

    def __repr__(self) -> str:
        return str(self)


@pytest.mark.parametrize(("file", "write"), [(CALLS, written_calls), (FILE, written)])
def test_the_stub_is_what_the_registry_has(file, write):
    pytest.importorskip("pyspark")
    stub, generated = (ast.dump(ast.parse(text)) for text in (file.read_text(), write()))
    assert stub == generated, "run python -m tests.contrib.test_function_signatures, then ruff format"


if __name__ == "__main__":
    CALLS.write_text(written_calls())
    FILE.write_text(written())
