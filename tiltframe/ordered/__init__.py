"""tiltframe.ordered: aggregates of rows in order, and chains of ordered windows."""
