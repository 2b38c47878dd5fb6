"""Dense groups, and numbers under one grouping."""
