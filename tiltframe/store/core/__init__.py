"""What a store does, whatever keeps its states."""
