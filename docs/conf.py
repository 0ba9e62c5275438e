"""How the site is built: see build.py for the command."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "extensions"), str(HERE.parent)]

# Cells that call `recsim-mnar` call the one of this Python.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])

os.environ["COLUMNS"] = "110"
# What runs first in each kernel: see the file.
os.environ["IPYTHONDIR"] = tempfile.mkdtemp(prefix="recsim-mnar-docs-")
_startup = Path(os.environ["IPYTHONDIR"]) / "profile_default" / "startup"
_startup.mkdir(parents=True)
shutil.copy(HERE / "extensions" / "kernel_startup.py", _startup)
atexit.register(shutil.rmtree, os.environ["IPYTHONDIR"], ignore_errors=True)

import recsim_mnar  # noqa: E402

project = "recsim-mnar"
author = "The recsim-mnar maintainers"
copyright = author
version = release = recsim_mnar.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "myst_nb",
    "reference",
    "brought",
    "tables",
    "formulas",
    "gallery",
    "playground",
]
# The second and third are what a build leaves here, which the next one would take for pages.
exclude_patterns = ["_build", "jupyter_execute", ".jupyter_cache", "README.md", "extensions"]
source_suffix = {".md": "myst-nb", ".rst": "restructuredtext"}

# Pages.
html_theme = "furo"
html_title = f"recsim-mnar {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = False
smartquotes = False  # "--out" is an option, no dash
html_show_sphinx = False
templates_path: list[str] = []
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence", "attrs_inline"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

# Cells: run anew in each build, so that no page shows what an older version printed.
nb_execution_mode = "force"
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_execution_in_temp = True

# The reference.
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False  # what stands before a colon under Returns is a description here, not a class
# Libraries that only an extra or the tests bring: the reference reads what is written here, not them.
autodoc_mock_imports = [
    "dask",
    "distributed",
    "implicit",
    "lenskit",
    "mabwiser",
    "pytest",
    "sklearn",
    "stable_baselines3",
    "threadpoolctl",
    "torch",
    "vowpalwabbit",
]

# Every name in a type must be one that the site describes, or one of these: nothing is downloaded to link to them.
nitpicky = True
_OTHERS = "abc|click|collections|concurrent|dask|datetime|distributed|enum|gymnasium|gym|io|matplotlib|np|numpy|os|pa|pandas|pathlib|pd|pyarrow|scipy|sparse|stable_baselines3|torch|typing"  # noqa: E501
nitpick_ignore_regex = [
    ("py:.*", rf"({_OTHERS})\..*"),
    ("py:.*", r"NDArray|Path|Table|AutoresetMode|ResetNeeded"),
    ("py:.*", r"(.*\.)?[A-Z]"),  # variables of types
    ("py:class", r"(.*\.)?_[A-Za-z]\w*"),  # what public classes share and no caller names
]
suppress_warnings: list[str] = []
