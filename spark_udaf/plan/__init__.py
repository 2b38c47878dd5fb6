"""The plan of a job: two phases with one shuffle between them. The modules contain shards, messages, sessions, workers,
and the sources of rows.
"""
