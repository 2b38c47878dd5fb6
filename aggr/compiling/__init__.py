"""Loops over rows, compiled by numba once a machine."""
