"""Batch jobs: what su.rollup, su.aggregate, su.finish and su.running plan."""
