"""Exact sums of rows, merged without error, and rounded once when they are read."""
