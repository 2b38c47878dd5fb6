"""Limits for findings about the language of the project: private names, private phrases and long positional calls.

Each package has a limit of findings per 1,000 lines. A limit may only become lower, when a package has improved. To
list the findings of files: python -m tests.docs.test_language aggr/measure.py
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
        if isinstance(node, ast.Call):
            has_star = any(isinstance(argument, ast.Starred) for argument in node.args)
            if len(node.args) > MOST_POSITIONAL and not has_star:
                yield Finding(node.lineno, f"pass {len(node.args)} arguments by keyword")
        elif isinstance(node, ast.IfExp) and isinstance(node.body, ast.IfExp):
            yield Finding(node.lineno, "write nested conditional expressions as statements")
        elif (name := defined_name(node)) and name.strip("_").lower() in EMPTY_NAMES:
            yield Finding(node.lineno, f"name {name!r} by its content")


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
        for finding in findings(Path(argument)):
            print(f"{argument}:{finding.line}: {finding.advice}")
