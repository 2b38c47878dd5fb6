"""Histograms over whole-number keys, stored as bytes, for DDSketch and HdrHistogram."""
