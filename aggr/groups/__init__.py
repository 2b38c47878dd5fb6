"""Groups of rows, and numbers that are reduced under one grouping."""
