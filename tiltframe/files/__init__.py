"""Files of events: formats, types of columns, and checks for damage."""
