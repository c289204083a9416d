"""Prints the lowest releases that setup.cfg allows, as constraints of pip."""

import configparser
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]


def lowest(setup):
    """Returns a line `name==version` for each lower bound in the text of a setup.cfg.

    The lowest of several bounds on one package would not be installed: the highest is.
    """
    config = configparser.ConfigParser()
    config.read_string(setup)
    lines = [config["options"]["install_requires"]]
    lines += config["options.extras_require"].values()
    found = {}
    for name, version in re.findall(r"(?m)^([\w-]+)>=([\d.]+)", "\n".join(lines)):
        found.setdefault(name, set()).add(version)
    return found


if __name__ == "__main__":
    for n, v in lowest((ROOT / "setup.cfg").read_text()).items():
        print(n + "==" + max(v))
