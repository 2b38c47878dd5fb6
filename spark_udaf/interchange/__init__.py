"""Interchange on Spark: columns of states as messages of other libraries, and back."""
