"""Amounts of memory as text."""

from __future__ import annotations

import pytest

from tiltframe.extend import memory_size


@pytest.mark.parametrize("value", [5, None, b"1GB"])
def test_only_texts_are_amounts_of_memory(value):
    with pytest.raises(TypeError, match="an amount of memory must be a text with a unit, such as '512MiB'; got "):
        memory_size(value)
