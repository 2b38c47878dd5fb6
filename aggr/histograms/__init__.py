"""Counts by whole-number keys, in bytes: what DDSketch and HdrHistogram share."""
