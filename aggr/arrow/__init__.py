"""Plain helpers on Arrow columns."""
