"""Fixtures of the tests of stores."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tiltframe.store.testing import MemoryBackend


@pytest.fixture(params=["memory", "folder", "postgres"])
def address(request, tmp_path) -> Callable[[], object]:
    """Return a function that gives the address of the same store each time."""
    if request.param == "memory":
        backend = MemoryBackend()
        return lambda: MemoryBackend(backend.name) if backend else None
    if request.param == "folder":
        return lambda: str(tmp_path / "store")
    uri = request.getfixturevalue("postgres")
    return lambda: uri
