"""tiltframe.ordered: aggregate rows in the order of key and time, and compute chains of ordered windows."""
