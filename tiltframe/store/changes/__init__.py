"""Changes: what a transaction does to a store, one operation a file."""
