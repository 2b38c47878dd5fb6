"""Histograms over integer keys, stored as bytes, for DDSketch and HdrHistogram."""
