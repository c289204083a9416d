"""Every package that the code imports is one that setup.cfg asks for."""

import configparser
import pathlib
import re
import sys
from importlib import metadata

from imported import imported

ROOT = pathlib.Path(__file__).parents[3]
OURS = ("keras_vit", "zoo", "train")


def normal(name):
    # `make next` has a pre-release of Keras by another name.
    return re.sub(r"[-_.]+", "-", name).lower().removesuffix("-nightly")


def declared():
    """What setup.cfg asks for, for any of its extras."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    lists = setup["options.extras_require"].values()
    lines = "\n".join([setup["options"]["install_requires"], *lists]).splitlines()
    return {normal(re.match(r"[\w.-]*", line)[0]) for line in lines} - {""}


def test_what_is_imported_is_declared():
    owners = metadata.packages_distributions()
    known = declared()
    assert {"scipy", "scikit-learn"} <= known
    files = (path for name in OURS for path in (ROOT / name).rglob("*.py"))
    others = {name.partition(".")[0] for path in files for name in imported(path)}
    others -= {*sys.stdlib_module_names, *OURS}
    # One that is not installed is imported where it is optional, by its own name.
    assert not {
        name for name in others if not known & {*map(normal, owners.get(name, [name]))}
    }
