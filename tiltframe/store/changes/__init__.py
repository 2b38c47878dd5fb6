"""Changes: the operations that change a store, one file each."""
