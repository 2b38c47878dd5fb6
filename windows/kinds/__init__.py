"""The kinds of time windows, one file each."""
