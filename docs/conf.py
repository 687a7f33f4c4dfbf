"""How Sphinx builds the documentation: the Markdown pages, and API pages from docstrings. `scripts/docs` runs it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pygments.lexers.special import TextLexer

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

project = "ndcg-spark"
author = "The authors of ndcg-spark"
version = release = re.search(r'"(.+)"', (ROOT / "ndcg_spark" / "_version.py").read_text().split("=")[1]).group(1)

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
suppress_warnings = ["myst.header"]  # pages that are included begin with headings of their own

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

default_role = "py:obj"  # `evaluate` in a docstring links to its page; what has no page is shown as code
autosummary_generate = True
autodoc_typehints = "none"  # types stand in the docstrings
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_validation_checks = {
    *("GL01", "GL02", "GL03", "GL05", "GL06", "GL07", "GL08", "GL10"),  # layout, and sections that are known
    *("SS01", "SS02", "SS03", "SS04", "SS06"),  # a summary of one line
    *("PR01", "PR02", "PR03", "PR05", "PR10", "RT01", "YD01"),  # parameters and returns
}
numpydoc_validation_exclude = {
    r"ndcg_spark\.evaluate$",  # lists what its **options may be, group by group
    r"\.PRESETS$",  # a dict
    r"\.NdcgEvaluator\.\w+$",  # as pyspark.ml documents them: in a line
}

toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = f"ndcg-spark {release}"
html_show_sourcelink = False
html_theme_options = {"show_toc_level": 2, "navigation_with_keys": False, "secondary_sidebar_items": ["page-toc"]}


def _within_the_pages(app, name: str, source: list[str]) -> None:
    """Links of pages to files around them: the README is the first page here, and folders have no page."""
    text = source[0].replace("](../README.md", "](index.md")
    source[0] = re.sub(r"\[([^\]]+)\]\(examples(/\w+)?\)", r"`\1`", text)


def setup(app) -> None:
    """Sphinx calls this."""
    app.connect("source-read", _within_the_pages)
    app.add_lexer("mermaid", TextLexer)  # a diagram where Markdown is rendered elsewhere; its text here
