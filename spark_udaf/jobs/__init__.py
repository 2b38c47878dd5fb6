"""Rollups and aggregations as Spark jobs."""
