"""Metadata that depends on the address of the project: the links, and README.md with addresses for its paths."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
ADDRESS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["tiltframe"]["address"]
SOURCE = f"{ADDRESS}/source"

readme = (ROOT / "README.md").read_text(encoding="utf-8")
setup(
    long_description=re.sub(r"\]\(([\w./-]+\.(?:md|svg))\)", rf"]({SOURCE}/\1)", readme),
    long_description_content_type="text/markdown",
    project_urls={
        "Homepage": ADDRESS,
        "Documentation": f"{ADDRESS}/documentation",
        "Source": SOURCE,
        "Changelog": f"{SOURCE}/CHANGELOG.md",
    },
)
