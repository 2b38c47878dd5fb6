"""Stores over HTTP: queries, writing, and a web page that shows them."""
