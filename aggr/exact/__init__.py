"""Exact sums of rows, which are merged without error, and rounded once when they are read."""
