"""Modules that backends of SQL databases share: states as plain columns, and bounds of keys as conditions."""
