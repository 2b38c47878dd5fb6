"""streaming: Structured Streaming queries, into a frame store or over open windows that emit results."""
