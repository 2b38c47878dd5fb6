"""Loops over rows, compiled by numba once per machine."""
