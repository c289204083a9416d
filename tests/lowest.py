"""Prints the lowest releases that setup.cfg allows, for `make lowest`, one per line.

They are constraints of pip. A bound that is not a release, or cannot be installed
beside the other ones, fails there.
"""

import configparser
import pathlib
import re

SETUP = pathlib.Path(__file__).parents[1] / "setup.cfg"


def lowest(setup):
    """Returns the lower bounds in the text of a setup.cfg, a dict of name to version.

    Raises:
        ValueError: a package has different bounds in two places.
    """
    config = configparser.ConfigParser()
    config.read_string(setup)
    parts = [config["options"]["install_requires"]]
    parts += config["options.extras_require"].values()
    found = {}
    for name, version in re.findall(r"(?m)^([\w-]+)>=([\w.]+)", "\n".join(parts)):
        if found.setdefault(name, version) != version:
            raise ValueError(f"{name} has two bounds, {found[name]} and {version}.")
    return found


if __name__ == "__main__":
    for name, version in lowest(SETUP.read_text("utf-8")).items():
        print(f"{name}=={version}")
