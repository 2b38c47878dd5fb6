"""Histograms: sketches of positive and negative numbers, and the buckets that they store as bytes.

A sketch with buckets of its own is a `SignedSketch` over a `SketchState`, which counts zeros, NaN and infinities apart
from the buckets of both signs.
"""

from aggr.functions.signed_sketch import COUNTS, SignedSketch, SketchState, whole_numbers
from aggr.histograms.bucket_ranges import BucketRanges
from aggr.histograms.column import first_last, shifted
from aggr.histograms.leb128 import FAR
from aggr.histograms.loops import find_key_ranges

__all__ = [
    "COUNTS",
    "FAR",
    "BucketRanges",
    "SignedSketch",
    "SketchState",
    "find_key_ranges",
    "first_last",
    "shifted",
    "whole_numbers",
]
