"""Pages with shell commands are followed in their order by tests/docs/test_pages.py, their Python as well."""

collect_ignore = [
    "adding-a-window.md",
    "dataframes.md",
    "index.md",
    "installing.md",
    "prometheus.md",
    "serve.md",
    "start.md",
]
collect_ignore_glob = ["how-to/*.md"]
