"""tests/docs/test_pages.py runs the shell commands of a page in their order, and its Python code as well."""

collect_ignore = [
    "extensions",  # of Sphinx, which most environments of tests lack
    "adding-a-policy.md",
    "adding-a-window.md",
    "dataframes.md",
    "index.md",
    "installing.md",
    "prometheus.md",
    "serve.md",
    "start.md",
]
collect_ignore_glob = ["how-to/*.md"]
