"""What tests share: the conformance cases, and naive group-wise evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

CONFORMANCE = Path(__file__).parent.parent.parent / "shared" / "conformance"


def cases_of(file: str) -> list[dict]:
    """Read conformance cases; none where the folder is absent."""
    path = CONFORMANCE / file
    return json.loads(path.read_text())["cases"] if path.exists() else []


def conformance(file: str, choose=lambda case: True):
    """Parametrize a test by the cases of a file; skip, and say so, where the folder is absent."""
    chosen = [pytest.param(case, id=case["name"]) for case in cases_of(file) if choose(case)]
    absent = [pytest.param(None, id="absent", marks=pytest.mark.skip(f"no {CONFORMANCE / file}"))]
    return pytest.mark.parametrize("case", chosen or absent)


@pytest.fixture(scope="session")
def spark():
    """One classic session for all tests that need no process of their own."""
    from tests import engines

    with engines.session("classic") as session:
        yield session
