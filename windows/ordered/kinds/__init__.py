"""The kinds of ordered windows, one file each."""
