"""The command `keras-vit`, and imports of `zoo` and `train` that are ours for sure.

A user's folder may have a `train.py` or `zoo.py` of its own. This module, whose name is
unique, makes sure that ours are imported, and names packages that are missing. It
imports the standard library alone, and Keras in `need_backend`.
"""

import difflib
import glob
import importlib.machinery
import importlib.util
import os
import runpy
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = ("keras_vit", "train", "zoo")
BACKENDS = ("tensorflow", "jax", "torch")
_TRAIN = os.path.join(HERE, "train")
# The file of each command: modules of `train`, folders of it that can be run, the zoo.
COMMANDS = {
    **{
        name[: -len(".py")]: os.path.join(_TRAIN, name)
        for name in sorted(glob.glob("[!_]*.py", root_dir=_TRAIN))
    },
    **{
        os.path.dirname(name): os.path.join(_TRAIN, name)
        for name in sorted(glob.glob("*/__main__.py", root_dir=_TRAIN))
    },
    "zoo": os.path.join(HERE, "zoo", "__main__.py"),
}
# A Python that leaves out the folder it is started in, which `-m` would put first.
# `-P`, which does that, is new in Python 3.11.
_START = (
    "import sys; sys.path[:] = [*filter(None, sys.path), sys.argv.pop(1)]; "
    "import keras_vit_start; keras_vit_start.run(sys.argv.pop(1))"
)


def main():
    """Runs `keras-vit COMMAND ...` and returns the exit status."""
    given = sys.argv[1:2]
    if given in ([], ["-h"], ["--help"], ["help"]):
        print(usage())
        return 0
    name = given[0].replace("-", "_")
    if name not in COMMANDS:
        near = difflib.get_close_matches(name.lower(), COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else "keras-vit alone lists all."
        print(f"keras-vit: no command {given[0][:80]!r}: {hint}", file=sys.stderr)
        return 2
    del sys.argv[1]
    run(module(name))
    return 0


def usage():
    """Returns the list of the commands: of each the first line of its docstring."""
    import ast

    width = max(map(len, COMMANDS)) + 2
    rows = []
    for name, path in COMMANDS.items():
        with open(path, encoding="utf-8") as file:
            says = ast.get_docstring(ast.parse(file.read())) or ""
        rows.append(f"  {name:{width}}{says.partition(chr(10))[0].rstrip('.')}")
    return (
        "The Vision Transformer for Keras 3: keras-vit COMMAND ...\n\n"
        + "\n".join(rows)
        + "\n\nkeras-vit COMMAND --help shows examples and flags."
    )


def module(name):
    """Returns the module of a command, such as `train.finetune` or `zoo`."""
    return name if name == "zoo" else f"train.{name}"


def typed(name, arguments=()):
    """Returns a command line in the style of this process: `keras-vit` or `python -m`.

    The arguments, a sequence of str, are quoted for a shell.

    Example:
        >>> typed("finetune", ["--dataset=my photos/"])
        "keras-vit finetune '--dataset=my photos/'"
    """
    import shlex

    pairs = set(zip(sys.orig_argv, sys.orig_argv[1:], strict=False))
    if any(("-m", module(command)) in pairs for command in COMMANDS):
        start = ["python", "-m", module(name)]
    else:
        start = ["keras-vit", name]
    return shlex.join([*start, *arguments])


def run(module):
    """Runs one of our modules like `python -m`, whatever else is on the path."""
    _take_ours(*PACKAGES)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def python(module, *arguments):
    """Returns the command line of a new Python process that does `run(module)`."""
    return [sys.executable, "-c", _START, HERE, module, *arguments]


def need_ours(*names):
    """Checks that `import NAME` finds our package, without importing it.

    A folder of that name without Python files, of photos say, is skipped.

    Raises:
        ImportError: another module of this name is found first.
    """
    for name in names:
        try:
            spec = importlib.util.find_spec(name)
        except ValueError:  # a module that somebody made by hand
            spec = importlib.machinery.ModuleSpec(name, None, origin="sys.modules")
        if spec is None:
            continue
        if spec.origin is None and name not in sys.modules:
            _take_ours(name)
            continue
        path = spec.origin or next(iter(spec.submodule_search_locations))
        folder = os.path.dirname(path) if spec.origin else path
        if os.path.realpath(folder) != os.path.realpath(os.path.join(HERE, name)):
            raise ImportError(
                f"{path} hides the package {name!r} that keras_vit needs: rename it, "
                "or start Python in another folder. The command keras-vit does not "
                "import it.",
                name=name,
                path=path,
            )


def need_backend():
    """Imports Keras, or raises a ModuleNotFoundError that says which backend to add."""
    try:
        import keras  # noqa: F401
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in BACKENDS:
            raise
        found = [
            name
            for name in BACKENDS
            if name != missing and importlib.util.find_spec(name)
        ]
        choice = " or ".join(f"KERAS_BACKEND={name}" for name in found)
        raise ModuleNotFoundError(
            f"Keras computes with {missing} here, which is not installed: pip install "
            f"{missing}"
            + (
                f", or set {choice} in the environment."
                if found
                else "; or pip install jax or torch, and set KERAS_BACKEND to its name."
            ),
            name=missing,
        ) from error


def _take_ours(*names):
    """Makes `import NAME` take our package from now on."""
    _OurPackages.names.update(names)
    if _OurPackages not in sys.meta_path:
        sys.meta_path.insert(0, _OurPackages)


class _OurPackages:
    """Finds our packages beside this file, before the path is searched."""

    names: set[str] = set()

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in cls.names:
            return None
        return importlib.machinery.PathFinder.find_spec(name, [HERE])


if __name__ == "__main__":
    sys.exit(main())
