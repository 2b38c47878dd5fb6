"""Queries: plans, their execution, and results."""
