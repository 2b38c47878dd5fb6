"""Text: parse measures and keys that users write, and write results as JSON, CSV and HTML, for the command line and
services.
"""
