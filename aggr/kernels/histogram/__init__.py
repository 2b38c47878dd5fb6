"""Histograms over whole-number keys: their columns, the loops that count and merge them, the field of a state."""
