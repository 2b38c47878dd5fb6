"""Lookups: keys of results that come from a table."""
