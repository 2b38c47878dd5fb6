"""Distinct counts: hashes as in Apache DataSketches, the k smallest hashes of a group, and HyperLogLog's registers."""
