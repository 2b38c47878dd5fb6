"""Histograms: sketches of positive and negative numbers, and the buckets that they store as bytes.

A sketch with a new layout of buckets is a subclass of `SignedSketch`. The state of the sketch is a subclass of
`SketchState`. Such a state counts zeros, NaN and infinities separately from the buckets of both signs.
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
