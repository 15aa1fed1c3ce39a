"""Sphinx configuration."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

import generate_causes  # noqa: E402 - found through the path above
import generate_interventions  # noqa: E402 - found through the path above

import neuraldbg  # noqa: E402 - found through the path above

generate_causes.main()
generate_interventions.main()

project = "NeuralDBG"
author = "NeuralDBG developers"
project_copyright = "2026, NeuralDBG developers"
version = release = neuraldbg.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"NeuralDBG {version}"
html_show_sphinx = False
