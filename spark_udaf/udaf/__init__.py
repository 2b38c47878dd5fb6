"""Aggregate functions, SQL functions and accessors for Spark."""
