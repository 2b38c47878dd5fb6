"""The aggregate functions, one file each."""
