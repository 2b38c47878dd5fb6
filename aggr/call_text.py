"""Calls as text, ``NAME(a, key=b)``. Measures, windows, ticks (such as ``hourly()``) and emit policies of streams share
this syntax.

    call      NAME, or NAME(argument, …)
    argument  value, or KEY=value, or FLAG, which stands for FLAG=true if the parameter FLAG has the default False
    value     a number, true, false, None, [value, …]; text in quotes; a call, if the parameter accepts calls; or bare
              text

Bare text ends at the next comma: ``30m``, ``price * quantity``. Text must be quoted by ' or " if it contains a comma or
an ``=``, or if it looks like another value, such as a number. Inside quoted text, a quotation mark of the same kind is
written twice, or after a backslash.
"""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from aggr.arguments import frozen, nearest, shown

T = TypeVar("T")
_WORDS = {"true": True, "false": False}
_CLOSING = {")": "(", "]": "[", "}": "{"}
_CALL = re.compile(r"\s*([a-z_]\w*)\s*(\(.*\))?\s*", re.ASCII | re.DOTALL | re.IGNORECASE)
_KEY = re.compile(r"([a-z_]\w*)\s*=(?!=)\s*(.*)", re.ASCII | re.DOTALL | re.IGNORECASE)
_QUOTED = r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\""""
_TOKEN = re.compile(rf"{_QUOTED}|[()\[\]{{}},]|[^()\[\]{{}},'\"]+", re.DOTALL)


class Call(NamedTuple):
    """A parsed call. ``arguments`` are pairs of a key (None if the argument is positional) and the text of a value."""

    name: str
    arguments: tuple[tuple[str | None, str], ...]


def split(text: str) -> list[str] | None:
    """Split text at the commas outside brackets and quotes; return None if a bracket or a quote is not closed.

    >>> split("10s, hopping(1h, 10m), 'a,b'")
    ['10s', 'hopping(1h, 10m)', "'a,b'"]
    """
    parts = [""]
    position = 0
    open_brackets: list[str] = []
    for token in _TOKEN.finditer(text):
        word = token[0]
        if token.start() != position or (
            word in _CLOSING and (not open_brackets or open_brackets.pop() != _CLOSING[word])
        ):
            return None
        position = token.end()
        if word in _CLOSING.values():
            open_brackets.append(word)
        if word == "," and not open_brackets:
            parts.append("")
        else:
            parts[-1] += word
    return None if open_brackets or position != len(text) else [part.strip() for part in parts]


def read_call(text: object, allows_bare_name: bool = False) -> Call | None:
    """Return the name and the arguments of a call; return None if the text is not a call. With ``allows_bare_name``, a
    name without parentheses is also a call.

    >>> read_call("hopping(1h, hop=10m)")
    Call(name='hopping', arguments=((None, '1h'), ('hop', '10m')))
    """
    match = _CALL.fullmatch(text) if isinstance(text, str) else None
    if match is None or (match[2] is None and not allows_bare_name):
        return None
    argument_text = (match[2] or "()")[1:-1]
    parts = split(argument_text) if argument_text.strip() else []
    keys = [_KEY.fullmatch(part) for part in parts or ()]
    if parts is None or not all(parts) or any(key and not key[2] for key in keys):
        return None
    return Call(match[1], tuple((k[1], k[2]) if k else (None, part) for k, part in zip(keys, parts, strict=True)))


def read_value(text: str) -> Any:
    """Return the value that a text represents: a number, a boolean, None, a list or a text. Text without quotes is
    returned unchanged.

    >>> [read_value(text) for text in ("30m", "0.5", "true", "[1s, 2]", "'it''s'", "n > 5")]
    ['30m', 0.5, True, ['1s', 2], "it's", 'n > 5']
    """
    if text[:1] == "[" and text[-1:] == "]" and (parts := split(text[1:-1])) is not None:
        return [read_value(part) for part in parts if part]
    if re.fullmatch(_QUOTED, text, re.DOTALL):
        quote = text[0]
        content = re.sub(rf"\\.|{quote}{quote}", lambda m: m[0] if m[0][0] == "\\" else f"\\{quote}", text[1:-1])
        text = quote + content.replace("\n", r"\n").replace("\r", r"\r") + quote
    try:
        with warnings.catch_warnings():
            # Python would warn about a backslash that does not begin an escape sequence, such as the one in \d.
            warnings.simplefilter("ignore")
            return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _WORDS.get(text, text)


def read_mapping(text: str) -> dict[str, str] | None:
    """Return the names and the texts of the values in ``{name: value, …}``; return None if the text is not a mapping.

    >>> read_mapping("{'n': count(), p: dds(ms, [0.5, 0.99])}")
    {'n': 'count()', 'p': 'dds(ms, [0.5, 0.99])'}
    """
    parts = split(text[1:-1]) if text[:1] == "{" and text[-1:] == "}" else None
    pairs = [re.fullmatch(rf"({_QUOTED}|\w+)\s*:\s*(.+)", part, re.DOTALL) for part in parts or ()]
    return {str(read_value(pair[1])): pair[2] for pair in pairs if pair} if pairs and all(pairs) else None


def bind_call(
    call: Call,
    constructor: Callable[..., T],
    text: str,
    what: str,
    fixed_arguments: Mapping[str, Any] | None = None,
    parse_value: Callable[[str, str | None], Any] = lambda text, parameter: read_value(text),
) -> Callable[[], T]:
    """Return a function without parameters that calls ``constructor`` with the arguments of ``call``. Raises
    ``ValueError`` if ``constructor`` does not take these arguments.

    Error messages show ``text``, the text of the complete call, and ``what``, the kind of object that it describes.
    ``fixed_arguments`` contains arguments that the text cannot set. They are passed if ``constructor`` has parameters
    with their names. ``parse_value(argument, parameter)`` parses the text of an argument; ``parameter`` is the name of
    its parameter, or None if ``constructor`` has no such parameter.
    """
    fixed = {
        name: argument
        for name, argument in (fixed_arguments or {}).items()
        if name in inspect.signature(constructor).parameters
    }
    constructor = partial(constructor, **fixed)
    signature = inspect.signature(constructor)
    parameters = {name: parameter for name, parameter in signature.parameters.items() if name not in fixed}
    names = list(parameters)
    has_named = False
    problem = ""
    positional_arguments: list[Any] = []
    named_arguments: dict[str, Any] = {}
    for key, argument in call.arguments:
        is_flag = key is None and argument in parameters and parameters[argument].default is False
        name = argument if is_flag else key
        if name is None:
            problem = f"{shown(argument)} has no name, but follows a named argument; name it" if has_named else problem
            place = len(positional_arguments)
            positional_arguments.append(parse_value(argument, names[place] if place < len(names) else None))
        elif name in named_arguments:
            problem = f"{name!r} is passed twice"
        else:
            named_arguments[name], has_named = (True, has_named) if is_flag else (parse_value(argument, name), True)
    try:
        inspect.Signature(list(parameters.values())).bind(*positional_arguments, **named_arguments)
    except TypeError as error:
        unknown = [f"there is no parameter {shown(name)}" for name in named_arguments if name not in parameters]
        problem = problem or (unknown or [str(error).replace("too many positional", "too many")])[0]
    if problem:
        parameter_list = ", ".join(_parameter(parameter) for parameter in parameters.values())
        raise ValueError(
            f"cannot read {shown(text)} as {what}: {problem}; {call.name} takes {parameter_list or 'nothing'}"
        )
    return partial(constructor, *positional_arguments, **named_arguments)


def _parameter(parameter: inspect.Parameter) -> str:
    name = f"*{parameter.name}" if parameter.kind is parameter.VAR_POSITIONAL else parameter.name
    return f"{name}=" if parameter.kind is parameter.KEYWORD_ONLY else name


def evaluate_call(
    constructors: Mapping[str, Callable[..., T]],
    text: object,
    what: str,
    example: str,
    fixed_arguments: Mapping[str, Any] | None = None,
    parse_inner_call: Callable[[str], Any] | None = None,
    allows_bare_name: bool = False,
) -> T:
    """Parse the text of a call, look up its name in ``constructors``, call this constructor with the arguments in the
    text, and return the result.

    Raises ``ValueError`` if the text is not a call, if ``constructors`` does not contain its name, or if its arguments
    are invalid.

    In error messages, ``what`` names the kind of call, and ``example`` is an example of it. ``fixed_arguments`` is
    described in `bind_call`. ``parse_inner_call`` parses arguments that are calls themselves. Without it, such
    arguments are bare text. With ``allows_bare_name``, a name without parentheses also counts as a call.
    """
    call = read_call(text, allows_bare_name)
    if call is None or call.name not in constructors:
        hint = nearest(call.name, constructors, f"write {example}") if call else f"write {example}"
        raise ValueError(f"cannot read {shown(text)} as {what}; {hint}")

    def parse_value(argument: str, parameter: str | None) -> Any:
        if parse_inner_call is not None and read_call(argument):
            return parse_inner_call(argument)
        # Lists become tuples, because the constructors create frozen dataclasses, whose fields must be hashable.
        return frozen(read_value(argument))

    return bind_call(
        call, constructors[call.name], str(text), what, fixed_arguments=fixed_arguments, parse_value=parse_value
    )()


def write_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call as text, with its arguments by name. Without arguments, return only the name.

    >>> write_call("periodic", {"every": "1m", "repeat": True, "having": "n > 3"})
    "periodic(every=1m, repeat=true, having='n > 3')"
    """
    written = [f"{key}={write_value(value)}" for key, value in arguments.items()]
    return f"{name}({', '.join(written)})" if written else name


def write_value(value: Any) -> str:
    """Return the text of a value, which `read_value` parses to the same value. Text is quoted only if necessary."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(write_value, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    is_bare = isinstance(value, str) and re.fullmatch(r"\w+", value, re.ASCII) and read_value(value) == value
    return str(value) if is_bare else repr(value)
