"""In all tests of streams, states are divided into small blocks, so that tables have several blocks."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiltframe.streaming.state_blocks._MIN_BYTES", 2000)
