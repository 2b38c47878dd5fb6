"""Conversion of states to the messages of other systems, and back."""
