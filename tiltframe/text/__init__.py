"""What people type, as values: measures and keys; the command line and services read them alike."""
