"""Helpers for Arrow columns: types, bits, hashes, order and records."""
