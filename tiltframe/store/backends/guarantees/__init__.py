"""The guarantees of a backend, and checks of them for any implementation."""
