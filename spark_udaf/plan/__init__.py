"""The plan of two phases around one shuffle, and its modules: sources, shards, messages, sessions, workers."""
