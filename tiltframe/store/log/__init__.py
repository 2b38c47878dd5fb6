"""The log of a store: its snapshots, and the transactions that change it."""
