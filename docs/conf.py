"""Settings with which Sphinx builds the documentation site from these pages: ``make docs``."""

import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).with_name("extensions")))

project = "tiltframe"
copyright = "the authors of tiltframe"  # the name that Sphinx requires
version = release = installed("tiltframe")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
    "search_summaries",
]
smartquotes = False  # otherwise the two dashes of an option would become one
html_theme = "furo"
html_title = "tiltframe"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = True
html_show_search_summary = False  # search_summaries shows them
html_theme_options = {"top_of_page_buttons": ["view"]}

myst_heading_anchors = 4  # links such as store.md#maintenance, in the form that GitHub uses
suppress_warnings = [
    "ref.python",  # a name between backticks that belongs to several classes
    "misc.highlighting_failure",  # Grafana's variables in SQL
]

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings contain the types of parameters
default_role = "py:obj"  # names between single backticks
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_custom_sections = [
    "Guarantee",
    ("What a function sets", "params_style"),
    ("More, for a few functions", "params_style"),
    ("Attributes that a state sets", "params_style"),
    ("Class attributes that a function sets, besides those of `Function`", "params_style"),
]

highlight_options = {"python": {"stripnl": True}}  # a block of prompts ends with an empty line

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
