"""streaming: Structured Streaming queries that write into a frame store, or that keep windows open and emit results."""
