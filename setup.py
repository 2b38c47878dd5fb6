"""The description of the distribution: README.md, whose links become addresses of the project's source."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
SOURCE = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]

readme = (ROOT / "README.md").read_text(encoding="utf-8")
setup(
    long_description=re.sub(r"\]\(([\w./-]+\.(?:md|svg))\)", rf"]({SOURCE}/\1)", readme),
    long_description_content_type="text/markdown",
)
