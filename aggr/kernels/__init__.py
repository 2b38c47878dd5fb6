"""Loops and whole-array operations over grouped rows; what every function is built from."""
