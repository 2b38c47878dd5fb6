"""The plan of a job: two phases with one shuffle between them. The modules contain the sources of rows, shards,
messages, sessions and workers.
"""
