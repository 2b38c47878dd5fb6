"""The laws of aggregate functions, and the values on which aggregates break."""
