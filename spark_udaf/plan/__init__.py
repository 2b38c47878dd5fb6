"""The plan of two phases around one shuffle, and what it stands on: sources, shards, messages, sessions, workers."""
