"""Limits of queries."""

# the maximum number of rows that filling and overlapping windows may create; more would not fit into memory
MAX_ROWS = 10_000_000
