"""Text: parse values that users type, and write results as JSON, for the command line and services."""
