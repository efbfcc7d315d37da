"""Sphinx's settings; `make docs` builds the site."""

from binshift import __version__

project = "binshift"
copyright = "the authors of binshift"
version = release = __version__

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["conf.py"]

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

# One backtick in a docstring is code.
default_role = "code"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "inherited-members": "Exception,tuple,str,Enum,StrEnum,ABC"}
python_maximum_signature_line_length = 88
# autodoc lists the members, with their signatures.
numpydoc_show_class_members = False

html_theme = "pydata_sphinx_theme"
html_title = "binshift"
html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": False,
    "footer_start": ["copyright"],
    "footer_end": [],
}
# Pages without pages below them need no list of their section.
html_sidebars = {"index": [], "benchmarks": []}
html_static_path = ["_static"]
html_css_files = ["binshift.css", "start.css"]
html_js_files = ["binshift.js"]

# What is copied can be typed: without prompts, and without what a command has printed.
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
