"""The function ``vector`` of PromQL: convert a scalar to a vector of one series without labels."""

from __future__ import annotations

import numpy as np

from tiltframe.serve.promql.cells import Scalar, Vector


def evaluate(scalar: Scalar) -> Vector:
    """Return a vector of one series without labels, whose values are those of ``scalar``."""
    return Vector([{}], scalar[None, :], np.ones((1, len(scalar)), np.bool_))
