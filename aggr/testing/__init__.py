"""The laws of aggregate functions, and values for which aggregates often fail."""
