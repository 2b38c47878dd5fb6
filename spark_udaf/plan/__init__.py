"""The plan of two phases around one shuffle, and its parts: sources, shards, messages, sessions, workers."""
