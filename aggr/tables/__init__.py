"""Tables of states: by keys, over ranges of rows, and from streams of batches."""
