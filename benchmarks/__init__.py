"""Benchmarks that compare tiltframe with the tools that users would choose instead."""
