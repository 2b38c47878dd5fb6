"""Each conformance case has a unique name and gives its source. The README gives the number of cases per file."""

from __future__ import annotations

import re

import pytest

from tests.conftest import CONFORMANCE, cases_of

FILES = sorted(path.name for path in CONFORMANCE.glob("*.json"))


@pytest.mark.parametrize("file", FILES)
def test_each_case_has_a_name_and_a_source(file):
    cases = cases_of(file)
    names = [case.get("name") or case["id"] for case in cases]
    assert len(set(names)) == len(names)
    assert [name for name, case in zip(names, cases, strict=True) if not (case.get("from") or case.get("source"))] == []


def test_the_readme_lists_each_file_with_its_number_of_cases():
    listed = re.findall(r"^\| `(\w+\.json)` \| (\d+) \|", (CONFORMANCE / "README.md").read_text(), re.MULTILINE)
    assert {file: int(count) for file, count in listed} == {file: len(cases_of(file)) for file in FILES}
