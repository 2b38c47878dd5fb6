"""Distinct counts: hashes of values as Apache DataSketches has them, and the k smallest of each group."""
