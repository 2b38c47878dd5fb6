"""Tables of states: grouped by keys, over ranges of rows, and from streams of batches."""
