"""The server: it answers queries of stores over HTTP, accepts events, and has a web page that shows the stores."""
