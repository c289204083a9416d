"""Packages that not everybody has, asked for before anything is made."""

import importlib.util

from train.common.errors import RunError

# What pip calls those that are imported under another name.
_NAMES = {"PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml"}


def need(what, packages, hint="", extra="train"):
    """Makes sure that packages are installed, without importing them.

    Args:
        what: str, what needs them.
        packages: iterable of str, as imported.
        hint: str, further words.
        extra: str, the extra of setup.cfg that has them.

    Raises:
        RunError: some are not.

    Example:

    >>> need("An array", ("numpy",))
    """
    names = [
        _NAMES.get(package, package.replace("_", "-"))
        for package in packages
        if importlib.util.find_spec(package) is None
    ]
    if names:
        verb = "is" if len(names) == 1 else "are"
        raise RunError(
            f"{what} needs {' and '.join(names)}, which {verb} not installed: "
            f"pip install {' '.join(names)}{hint}. In a clone of keras_vit, "
            f"pip install '.[{extra}]' takes all of its kind."
        )
