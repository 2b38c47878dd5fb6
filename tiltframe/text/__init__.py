"""Text: what people type, as values, and results as JSON; the command line and services share both."""
