"""The docstring of every public function and method describes parameters, returned values and errors."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from tiltframe.store.backends.protocol import Backend

ROOT = Path(__file__).parent.parent.parent
PUBLIC = [  # what users call and import
    *("aggr", "aggr.sql", "aggr.testing.laws", "aggr.testing.edge_cases", "aggr.testing.kept_states"),
    *("aggr.contrib", "aggr.interchange.ddsketch_proto", "aggr.interchange.hdr_v2"),
    *("windows", "windows.ordered", "windows.testing", "windows.ordered.testing"),
    *(
        "tiltframe",
        "tiltframe.streaming",
        "tiltframe.streaming.policies",
        "tiltframe.streaming.testing",
        "tiltframe.store",
        "tiltframe.store.testing",
    ),
    "spark_udaf",
]
PROTOCOLS = [  # what those implement who add a function, a window or a store
    *(
        "aggr.function",
        "aggr.state",
        "aggr.fields",
        "aggr.groups.groups",
        "windows.contract",
        "windows.ordered.contract",
    ),
    "tiltframe.store.backends.protocol",
]
FOLLOW_A_PROTOCOL = ("tiltframe.store.backends.memory",)  # without inheriting from it
SELF = ("OpenedStore", "FrameStore")  # annotate the first parameter of functions that are methods of a store
OURS = ("aggr", "windows", "tiltframe", "spark_udaf")


def names_of(module: Any) -> list[str]:
    """List a module's `__all__`; of a module without one, what is public and defined in it."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return list(getattr(module, "__all__", [name for name in own if not name.startswith("_")]))


def public(module: str) -> Iterator[tuple[str, Any]]:
    """List the functions and classes of a module, and the methods that its classes define themselves."""
    for name in names_of(importlib.import_module(module)):
        value = getattr(sys.modules[module], name)
        if inspect.isfunction(value) or inspect.isclass(value):
            yield f"{module}.{name}", value
        for word, member in vars(value).items() if inspect.isclass(value) else ():
            function = getattr(member, "__func__", member)  # of class methods and static methods
            if inspect.isfunction(function) and not word.startswith("_") and not overrides(value, word):
                yield f"{module}.{name}.{word}", function


def overrides(cls: type, name: str) -> bool:
    """Say whether a base class, or the protocol that a class follows, documents the method already."""
    protocols = (Backend,) if cls.__module__ in FOLLOW_A_PROTOCOL else ()
    bases = [*cls.__mro__[1:], *(base for base in protocols if base is not cls)]
    return any(getattr(vars(base).get(name), "__doc__", None) for base in bases)


def parameters(documented: Any) -> list[str]:
    if inspect.isclass(documented):
        return [f.name for f in fields(documented) if f.init] if is_dataclass(documented) else []
    own = inspect.signature(documented).parameters.items()
    return [name for name, each in own if name not in ("self", "cls") and each.annotation not in SELF]


def sections(documented: Any) -> dict[str, str]:
    """Cut a docstring into numpydoc's sections."""
    parts = re.split(r"^(\w[^\n]*)\n-+$", inspect.cleandoc(documented.__doc__ or ""), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def described(section: str) -> dict[str, str]:
    """Find the parameters of a section, each with its type: a line such as ``starts, ends : array of int64``."""
    lines = re.findall(r"^([*\w][*\w, ]*?)(?: : ([^\n]*))?$", section, flags=re.M)
    return {name.strip(" *"): dtype for names, dtype in lines for name in names.split(",")}


def raised(function: Callable[..., Any]) -> set[str]:
    """Name the errors that a function raises, or that the checks and the readers which it calls raise."""
    names = raises_of(function)
    for node in ast.walk(tree_of(function)):
        called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        if re.match(r"_?(check|refuse|read)", called):
            check = function.__globals__.get(called)
            names |= raises_of(check) if inspect.isfunction(check) and check.__module__.startswith(OURS) else set()
    return names - {"NotImplementedError", "AssertionError"}


def raises_of(function: Callable[..., Any]) -> set[str]:
    namespace = {**vars(builtins), **function.__globals__}
    called = [
        node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        for node in ast.walk(tree_of(function))
        if isinstance(node, ast.Raise)
    ]
    names = {error.id for error in called if isinstance(error, ast.Name)}
    return {name for name in names if inspect.isclass(namespace.get(name))}


def tree_of(function: Callable[..., Any]) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def shortcomings(documented: Any) -> list[str]:
    """Say what a docstring leaves out."""
    doc, names = sections(documented), parameters(documented)
    documented_names = described(doc.get("Parameters", ""))
    missing = [f"the parameter {name}" for name in names if name not in documented_names]
    missing += [f"the type of {name}" for name in names if name in documented_names and not documented_names[name]]
    if inspect.isclass(documented):
        return missing
    returns = inspect.signature(documented).return_annotation
    if names and returns not in (None, "None", inspect.Signature.empty) and not {"Returns", "Yields"} & set(doc):
        missing.append("what it returns")
    if names and raised(documented) and "Raises" not in doc:
        missing.append(f"that it raises {' and '.join(sorted(raised(documented)))}")
    return missing


DOCUMENTED = {id(value): (name, value) for module in PUBLIC + PROTOCOLS for name, value in public(module)}


@pytest.mark.parametrize("package", OURS)
def test_public_names_say_what_they_take_return_and_raise(package: str) -> None:
    own = [(name, value) for name, value in DOCUMENTED.values() if name.split(".")[0] == package]
    assert own
    short = {name: missing for name, value in own if (missing := shortcomings(value))}
    assert not short, "\n".join(f"{name} does not say {', '.join(missing)}" for name, missing in short.items())


def undocumented(module: str) -> Iterator[str]:
    """List the public methods of a module's classes that neither they nor a base class says anything of."""
    for cls in vars(importlib.import_module(module)).values():
        if inspect.isclass(cls) and cls.__module__ == module and not cls.__name__.startswith("_"):
            for name, member in vars(cls).items():
                method = isinstance(member, property | classmethod | staticmethod) or inspect.isfunction(member)
                if method and not name.startswith("_") and not member.__doc__ and not overrides(cls, name):
                    yield f"{module}.{cls.__name__}.{name}"


@pytest.mark.parametrize("package", OURS)
def test_methods_say_what_they_do_unless_what_they_override_does(package: str) -> None:
    files = [file.relative_to(ROOT).with_suffix("") for file in (ROOT / package).rglob("*.py")]
    modules = [".".join(file.parts).removesuffix(".__init__") for file in files if file.name != "__main__"]
    silent = [name for module in sorted(modules) for name in undocumented(module)]
    assert len(modules) > 5
    assert not silent


def test_what_is_left_out_is_found() -> None:
    def silent(rows: int) -> int:
        """Do something."""
        if rows < 0:
            raise ValueError("negative")
        return rows

    def spoken(rows: int, *more: int) -> int:
        """Do something.

        Parameters
        ----------
        rows
            How many.
        more : ints
        """
        return rows

    assert shortcomings(silent) == ["the parameter rows", "what it returns", "that it raises ValueError"]
    assert shortcomings(spoken) == ["the type of rows", "what it returns"]
