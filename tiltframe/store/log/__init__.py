"""The log of a store: snapshots of it, and transactions that are committed to it."""
