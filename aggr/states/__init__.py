"""Columns and tables of states: reduced, merged, identified, compared and read."""
