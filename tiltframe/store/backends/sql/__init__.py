"""Modules that the backends for SQL databases share: states as plain columns, and bounds of keys as conditions."""
