"""streaming: Structured Streaming queries into a frame store."""
