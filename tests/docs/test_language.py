"""Limits for findings about the language of the project: private names, private phrases, long positional calls and
dense expressions.

Each package has a limit of findings per 1,000 lines. Each kind of dense expression has a limit for all code except
tests. A limit may only become lower, when the code has improved. To list the findings of files:
python -m tests.docs.test_language aggr/measure.py
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
CEILINGS = {  # findings per 1,000 lines
    "aggr": 3,
    "windows": 4,
    "tiltframe": 3,
    "spark_udaf": 1,
    "docs": 2,
    "benchmarks": 1,
    "tests": 13,
    "pages at the top": 2,
}
MOST_POSITIONAL = 4  # arguments of a call; more need keywords

NESTED_CONDITION = "write nested conditional expressions as statements"
PRODUCT_WITH_CONDITION = "write a conditional expression, not a text or a list times a condition"
CONDITIONAL_ITERABLE = "name the values of a loop, or write a condition around it"
TUPLE_ASSIGNMENT = "assign to each name in a statement of its own"
LONG_CALL = f"pass more than {MOST_POSITIONAL} arguments by keyword"
CEILINGS_OF_DENSE_EXPRESSIONS = {
    NESTED_CONDITION: 0,
    PRODUCT_WITH_CONDITION: 0,
    CONDITIONAL_ITERABLE: 0,
    TUPLE_ASSIGNMENT: 0,
    LONG_CALL: 11,  # of compiled loops
}

# Participles and pronouns do not say what a value contains.
EMPTY_NAMES = {
    "given", "found", "held", "kept", "told", "said", "made", "known", "wanted", "mine", "theirs", "asked", "there",
    "taken", "noted", "some", "each", "rest", "of", "one", "others", "ends", "whole", "least", "most", "reach",
    "gone", "met",
}  # fmt: skip
PHRASES = {
    "negate the verb, not the noun": r"(?<!there )\b(?:is|are|was) (?:no|none)\b(?! longer\b| more\b)",
    "use a noun, not a clause with 'what'": r"\bwhat (?:is|are|has|have|was|were|comes|came)\b",
    "name the thing that 'of which' or 'of these' refers to": r"\bof (?:which|these|those|whom)\b",
    "name the person or program": r"\b(?:who|whoever|whom|nobody|somebody)\b",
    "say 'report', 'show' or 'pass'": r"\b(?:told|tells?|telling)\b",
    "say 'next to' or 'in addition'": r"\bbeside\b",
    "say 'again'": r"\banew\b",
    "leave 'perhaps' out, or state the condition": r"\bperhaps\b",
    "say 'unchanged'": r"\bas (?:it is|they are)\b",
    "say 'if' for a condition": r"\b(?:null|none|empty|0|error|false|true|nothing)\b[^.;,()]{0,12}"
    r"\bwhere (?:there|it|they|a|the|no|none|nothing)\b",
    "state the number": r"\bso (?:many|much)\b",
}
COMPILED = {advice: re.compile(pattern, re.IGNORECASE) for advice, pattern in PHRASES.items()}
SHORTEST_PROSE = 24  # characters of a string that is read as a sentence


class Finding(NamedTuple):
    """One place with the advice for it."""

    line: int
    advice: str


def findings(path: Path) -> list[Finding]:
    """List the findings of a Python file or a page."""
    source = path.read_text(encoding="utf-8")
    is_page = path.suffix == ".md"
    prose = prose_of_page(source) if is_page else prose_of_code(source)
    places = [
        Finding(line, advice)
        for line, text in prose
        for advice, pattern in COMPILED.items()
        for _ in pattern.findall(re.sub(r"`[^`]*`", "", text))
    ]
    return sorted(places if is_page else [*places, *names_in(ast.parse(source))])


def prose_of_page(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page that are not in code blocks."""
    is_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, line


def prose_of_code(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of comments and of longer strings, except examples."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_sentence = token.type == tokenize.STRING and len(token.string) > SHORTEST_PROSE
        if token.type != tokenize.COMMENT and not is_sentence:
            continue
        for offset, text in enumerate(token.string.splitlines()):
            if not text.lstrip().startswith((">>>", "...")):
                yield token.start[0] + offset, text


def names_in(tree: ast.AST) -> Iterator[Finding]:
    """Yield names without content, calls with many positional arguments, and nested conditional expressions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and is_long_call(node):
            yield Finding(node.lineno, f"pass {len(node.args)} arguments by keyword")
        elif isinstance(node, ast.IfExp) and isinstance(node.body, ast.IfExp):
            yield Finding(node.lineno, "write nested conditional expressions as statements")
        elif (name := defined_name(node)) and name.strip("_").lower() in EMPTY_NAMES:
            yield Finding(node.lineno, f"name {name!r} by its content")


def dense_expressions(tree: ast.AST) -> Iterator[Finding]:
    """Yield the expressions of a module that `CEILINGS_OF_DENSE_EXPRESSIONS` limits."""
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp):
            inner_nodes = (inner for child in ast.iter_child_nodes(node) for inner in ast.walk(child))
            if any(isinstance(inner, ast.IfExp) for inner in inner_nodes):
                yield Finding(node.lineno, NESTED_CONDITION)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            if is_sequence(node.left) and is_condition(node.right):
                yield Finding(node.lineno, PRODUCT_WITH_CONDITION)
        elif isinstance(node, ast.For | ast.comprehension):
            if isinstance(node.iter, ast.IfExp):
                yield Finding(node.iter.lineno, CONDITIONAL_ITERABLE)
        elif isinstance(node, ast.Assign):
            if any(is_pair_of_values(target, node.value) for target in node.targets):
                yield Finding(node.lineno, TUPLE_ASSIGNMENT)
        elif isinstance(node, ast.Call) and is_long_call(node):
            yield Finding(node.lineno, LONG_CALL)


def is_long_call(node: ast.Call) -> bool:
    """Return whether a call passes many positional arguments. Calls that pass the elements of a sequence are not."""
    has_star = any(isinstance(argument, ast.Starred) for argument in node.args)
    return len(node.args) > MOST_POSITIONAL and not has_star


def is_sequence(node: ast.expr) -> bool:
    """Return whether an expression is a text, a list or a tuple, as far as its syntax shows."""
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    return is_text or isinstance(node, ast.JoinedStr | ast.List | ast.Tuple)


def is_condition(node: ast.expr) -> bool:
    """Return whether an expression is a boolean, as far as its syntax and its name show."""
    if isinstance(node, ast.Compare | ast.BoolOp):
        return True
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    called = node.func if isinstance(node, ast.Call) else node
    name = getattr(called, "attr", getattr(called, "id", ""))
    return name in ("bool", "isinstance") or name.startswith(("is_", "has_", "startswith", "endswith"))


def is_pair_of_values(target: ast.expr, value: ast.expr) -> bool:
    """Return whether an assignment gives several values to several names. An exchange of names is an exception, and
    so is an assignment to elements.
    """
    if not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)):
        return False
    if any(isinstance(element, ast.Subscript) for element in target.elts):
        return False
    return {ast.unparse(element) for element in target.elts} != {ast.unparse(element) for element in value.elts}


def defined_name(node: ast.AST) -> str:
    """Return the name that a node defines, if it defines one."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    return ""


def files_of(package: str) -> list[Path]:
    """List the Python files and pages of a package."""
    if package == "pages at the top":
        return [path for path in ROOT.iterdir() if path.suffix in (".md", ".py")]
    return [path for path in (ROOT / package).rglob("*") if path.suffix in (".md", ".py")]


@pytest.mark.parametrize("package", CEILINGS)
def test_a_package_stays_below_its_ceiling(package):
    files = files_of(package)
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    count = sum(len(findings(path)) for path in files)
    assert 1000 * count / lines <= CEILINGS[package], (
        f"{package} has {count} findings in {lines:,} lines; list them: python -m tests.docs.test_language FILE…"
    )


@pytest.mark.parametrize("advice", CEILINGS_OF_DENSE_EXPRESSIONS)
def test_dense_expressions_stay_below_their_ceiling(advice):
    paths = [path for package in CEILINGS if package != "tests" for path in files_of(package) if path.suffix == ".py"]
    places = [
        f"{path.relative_to(ROOT)}:{finding.line}"
        for path in paths
        for finding in dense_expressions(ast.parse(path.read_text(encoding="utf-8")))
        if finding.advice == advice
    ]
    assert len(places) <= CEILINGS_OF_DENSE_EXPRESSIONS[advice], f"{advice}: {', '.join(places)}"


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        ("x = 1 if a else (2 if b else 3)\n", NESTED_CONDITION),
        ("x = 1 if (2 if a else b) else 3\n", NESTED_CONDITION),
        ("x = 1 if a else f(2 if b else 3)\n", NESTED_CONDITION),
        ("x = ['a'] * (a and b)\n", PRODUCT_WITH_CONDITION),
        ("x = 's' * (n > 1)\n", PRODUCT_WITH_CONDITION),
        ("x = f'-{n}' * is_inner\n", PRODUCT_WITH_CONDITION),
        ("x = 'a.' * name.startswith('a')\n", PRODUCT_WITH_CONDITION),
        ("for x in values if values else (): f(x)\n", CONDITIONAL_ITERABLE),
        ("y = [x for x in (values if values else ())]\n", CONDITIONAL_ITERABLE),
        ("a, b = f(x), g(x)\n", TUPLE_ASSIGNMENT),
        ("(a, b), c = f(x), y\n", TUPLE_ASSIGNMENT),
        ("self.a, b = 1, 2\n", TUPLE_ASSIGNMENT),
        ("f(1, 2, 3, 4, 5)\n", LONG_CALL),
    ],
)
def test_dense_expressions_are_found(source, advice):
    assert [finding.advice for finding in dense_expressions(ast.parse(source))] == [advice]


@pytest.mark.parametrize(
    "source",
    [
        "x = 1 if a else 2\n",
        "x = ['a'] * n\n",
        "x = '-' * len(title)\n",
        "for x in values: f(1 if x else 2)\n",
        "a, b = b, a\n",
        "a, b = f(x)\n",
        "low[i], high[i] = 0, 1\n",
        "f(1, 2, 3, 4, e=5)\n",
        "f(*values, 2, 3, 4, 5)\n",
    ],
)
def test_plain_expressions_are_not_findings(source):
    assert list(dense_expressions(ast.parse(source))) == []


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        ('"""Return the states, perhaps."""\n', "leave 'perhaps' out, or state the condition"),
        ("# The result is null where there are no rows.\n", "say 'if' for a condition"),
        ("held = 1\n", "name 'held' by its content"),
        ("def kept(given): ...\n", "name 'given' by its content"),
        ("f(1, 2, 3, 4, 5)\n", "pass 5 arguments by keyword"),
        ("x = (1 if a else 2) if b else 3\n", "write nested conditional expressions as statements"),
    ],
)
def test_findings_are_found(source, advice, tmp_path):
    file = tmp_path / "example.py"
    file.write_text(source)
    assert advice in [finding.advice for finding in findings(file)]


def test_code_examples_and_quoted_code_are_not_prose(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Use `told`.\n\n```python\n# who is told\n```\n")
    assert findings(page) == []


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        places = findings(Path(argument))
        if argument.endswith(".py"):
            places += dense_expressions(ast.parse(Path(argument).read_text(encoding="utf-8")))
        for finding in places:
            print(f"{argument}:{finding.line}: {finding.advice}")
