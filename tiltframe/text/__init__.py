"""Text: values from text that users type, and results as JSON, for the command line and services."""
