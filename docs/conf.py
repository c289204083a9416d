"""How Sphinx builds the documentation: `make docs`."""

import configparser
import os
import pathlib
import sys

DOCS = pathlib.Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS / "_ext")]
# The docstrings are read from the imported modules, of which some need TensorFlow.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_setup = configparser.ConfigParser()
_setup.read(ROOT / "setup.cfg", encoding="utf-8")
_metadata = _setup["metadata"]

project = _metadata["name"]
version = release = _metadata["version"]
copyright = f"the authors of {project}, {_metadata['license']}"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "reference",
]
exclude_patterns = ["_build"]

# Links like [x](page.md#heading) work here as they do on GitHub.
myst_heading_anchors = 4

# They are large, and their pages need our own docstrings alone.
autodoc_mock_imports = ["ray", "apache_beam"]
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
# The docstrings say the types in words.
autodoc_typehints = "none"
autosummary_generate = False
maximum_signature_line_length = 80
napoleon_attr_annotations = False
napoleon_custom_sections = [("Call arguments", "params_style"), "Source", "Environment"]
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
# `name` in a docstring is code, and a link where the reference has that name.
default_role = "py:obj"
nitpick_ignore_regex = [("py:obj", ".*")]

html_theme = "furo"
html_title = project
html_copy_source = False

# The button of a console block copies the commands without their prompt.
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"
