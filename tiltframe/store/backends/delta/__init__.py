"""Stores in Delta Lake tables."""
