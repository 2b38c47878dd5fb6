"""Queries: planned, executed, and made into results."""
