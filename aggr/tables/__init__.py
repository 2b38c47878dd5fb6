"""Tables of states: by keys, over ranges of rows, as batches come."""
