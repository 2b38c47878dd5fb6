"""Stores over HTTP: queries, writing, and a page to look at them."""
