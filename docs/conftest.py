"""Pages with shell commands are followed in their order by tests/test_pages.py, their Python as well."""

collect_ignore = ["installing.md", "start.md"]
collect_ignore_glob = ["how-to/*.md"]
