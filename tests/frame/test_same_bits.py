"""Local code gives the stored bits with which all versions of Spark are compared, with any versions of its
libraries.
"""

from __future__ import annotations

import pytest

from tests import same_bits


@pytest.mark.store
@pytest.mark.slow
def test_local_code_gives_the_stored_bits(tmp_path):
    digests = same_bits.digests_of_local_code(tmp_path)
    assert same_bits.differences(digests) == []
    digests["rollup"]["result d"] = "of other bits"
    assert same_bits.differences(digests) == ["rollup: result d"]
