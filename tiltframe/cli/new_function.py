"""tiltframe new-function: write a package with a new function, tests of its laws, a benchmark and a Spark test."""

from __future__ import annotations

import keyword
from importlib import resources
from pathlib import Path
from string import Template

import click

from aggr.arguments import shown
from aggr.registry import aliases, names

_FILES = {  # file of the template → its path in the new package
    "pyproject.toml.txt": "pyproject.toml",
    "README.md.txt": "README.md",
    "benchmark.py.txt": "benchmark.py",
    "src/__init__.py.txt": "src/{package}/__init__.py",
    "tests/test_laws.py.txt": "tests/test_laws.py",
    "tests/test_spark.py.txt": "tests/test_spark.py",
}


@click.command(
    "new-function",
    epilog="\b\nExamples:\n  tiltframe new-function weighted_median\n  tiltframe new-function mean_cube --folder .",
)
@click.argument("name")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the package is written; by default aggr-NAME, with hyphens.",
)
def new_function(name: str, folder: Path | None) -> None:
    """Write a package with the function NAME, tests of its laws, a benchmark and a Spark test. All tests pass.

    The function computes a mean until you replace its code. Existing files are never overwritten.
    """
    _check_name(name)
    distribution = f"aggr-{name.replace('_', '-')}"
    folder = Path(distribution) if folder is None else folder
    words = {
        "name": name,
        "class_name": "".join(word.capitalize() for word in name.split("_")),
        "package": f"aggr_{name}",
        "distribution": distribution,
    }
    files = {folder / path.format(**words): _filled(template, words) for template, path in _FILES.items()}
    existing = [str(path) for path in files if path.exists()]
    if existing:
        raise click.UsageError(f"these files already exist: {', '.join(existing)}; choose another --folder")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf8")
        click.echo(path)


def _check_name(name: str) -> None:
    """Raise an error if a name is not a lowercase word, or if another function has this name."""
    is_word = name.isascii() and name.isidentifier() and name == name.lower() and not name.startswith("_")
    if not is_word or keyword.iskeyword(name):
        raise click.UsageError(f"the name must be a word in lower case such as weighted_median; got {shown(name)}")
    if name in {*names(), *aliases()}:
        raise click.UsageError(f"the name {shown(name)} is taken by another function; choose another name")


def _filled(template: str, words: dict[str, str]) -> str:
    text = (resources.files("tiltframe.cli") / "function_template" / template).read_text(encoding="utf8")
    return Template(text).substitute(words)
