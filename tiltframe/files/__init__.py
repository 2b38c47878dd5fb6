"""Files of events: their formats, what is known of their columns, and whether they are sound."""
