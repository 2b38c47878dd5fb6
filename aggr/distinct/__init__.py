"""Distinct counts: hash values as in Apache DataSketches, and keep the k smallest hashes of each group."""
