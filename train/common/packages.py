"""Optional packages, checked for before anything is written."""

import importlib.util
from collections.abc import Iterable

from train.common.errors import RunError

# pip knows these packages under other names than Python.
_NAMES = {"PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml"}


def need(
    subject: str, packages: Iterable[str], hint: str = "", extra: str = "train"
) -> None:
    """Raises a `RunError` if packages that `subject` needs are not installed.

    `packages` are import names, and are not imported; `extra` of setup.cfg has them.
    """
    names = [
        _NAMES.get(package, package.replace("_", "-"))
        for package in packages
        if importlib.util.find_spec(package) is None
    ]
    if names:
        verb = "is" if len(names) == 1 else "are"
        raise RunError(
            f"{subject} needs {' and '.join(names)}, which {verb} not installed: "
            f"pip install {' '.join(names)}{hint}. In a clone of keras_vit, "
            f"pip install '.[{extra}]' takes all of its kind."
        )
