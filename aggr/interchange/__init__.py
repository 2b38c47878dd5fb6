"""States as the messages of other systems, and back."""
