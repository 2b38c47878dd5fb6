"""Distinct counts: hashes of values as in Apache DataSketches, and the k smallest hashes of each group."""
