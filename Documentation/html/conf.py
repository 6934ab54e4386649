# SPDX-License-Identifier: GPL-2.0-only
"""How Sphinx makes HTML of the documents; ./make runs it."""

import os
import re
from pathlib import Path

from docutils import nodes

TREE = Path(os.environ["TREE"])

project = "memreg"
copyright = "the authors of memreg"
version = release = ".".join(
    re.findall(r"define MEMREG_VERSION_(?:MAJOR|MINOR|PATCH)\s+(\d+)",
               (TREE / "user/lib/memreg.h").read_text()))

primary_domain = "c"
highlight_language = "none"
smartquotes = False
html_theme = "alabaster"
html_theme_options = {
    "description": "RDMA memory registration that is cheap, revocable and safe",
    "page_width": "1320px",
    "sidebar_width": "240px",
    "fixed_sidebar": False,
    "font_family": "sans-serif",
    "head_font_family": "sans-serif",
}
html_sidebars = {"**": ["about.html", "searchbox.html", "navigation.html"]}
html_static_path = [str(TREE / "Documentation/html/static")]
html_css_files = ["memreg.css"]
html_extra_path = [str(TREE / "build/docs/man")]
html_show_sphinx = False
html_copy_source = False
toc_object_entries_show_parents = "hide"


def links_of_pages(app, doctree):
    """Links between the documents work in the tree, and in HTML."""
    for node in doctree.findall(nodes.reference):
        uri = node.get("refuri", "")
        node["refuri"] = re.sub(r"^([a-z-]+)\.rst(?=#|$)", r"\1.html", uri)
        if not node["refuri"]:
            del node["refuri"]


def setup(app):
    """Called by Sphinx."""
    app.connect("doctree-read", links_of_pages)
