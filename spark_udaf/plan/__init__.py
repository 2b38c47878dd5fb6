"""The plan of a job: two phases with one shuffle between them. The modules are sources of rows, shards, messages,
sessions and workers.
"""
