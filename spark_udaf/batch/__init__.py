"""Batch jobs: the plans of su.rollup, su.aggregate, su.finish and su.running."""
