"""The command `keras-vit`, and imports of `zoo` and `train` that are ours for sure.

A user's folder may have a `train.py` or `zoo.py` of its own. This module, whose name is
unique, makes sure that ours are imported, and names packages that are missing. It
imports the standard library alone, and Keras in `need_backend`.
"""

import contextlib
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
# The commands in the order in which they are used; others follow in the last group.
_GROUPS = {
    "Every day": (
        *("check", "few_shot", "finetune", "predict", "evaluate", "explain"),
        *("export", "publish"),
    ),
    "Research": ("pretrain", "masked_patches", "compare", "study"),
    "Released models, and the rest": ("zoo",),
}
_EXAMPLES = {
    "check": "photos/   # class/*.jpg",
    "few_shot": "vit-ti16/augreg-imagenet21k photos/",
    "finetune": "photos/ --run_dir=runs/photos",
    "predict": "runs/photos new/*.jpg",
    "explain": "runs/photos photo.jpg",
}
# Codes of terminals (ECMA-48).
_STYLES = {"error": "1;31", "warning": "33", "next": "1", "title": "1"}
# A Python that leaves out the folder it is started in, which `-m` would put first.
_START = (
    "import sys; sys.path[:] = [*filter(None, sys.path), sys.argv.pop(1)]; "
    "import keras_vit_start; keras_vit_start.run(sys.argv.pop(1))"
)


def main():
    """Runs `keras-vit COMMAND ...` and returns the exit status."""
    given = sys.argv[1:2]
    if given in ([], ["-h"], ["--help"], ["help"]):
        with contextlib.suppress(BrokenPipeError):
            print(usage(), flush=True)
            return 0
        # Nothing more can be flushed at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if given == ["--version"]:
        file = os.path.join(HERE, "keras_vit", "version.py")
        print("keras_vit", runpy.run_path(file)["__version__"])
        return 0
    name = given[0].replace("-", "_")
    if name not in COMMANDS:
        near = difflib.get_close_matches(name.lower(), COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else "keras-vit alone lists all."
        start = styled("keras-vit:", "error", sys.stderr)
        print(f"{start} no command {given[0][:80]!r}: {hint}", file=sys.stderr)
        return 2
    del sys.argv[1]
    try:
        run(module(name))
    # Commands answer to Ctrl-C themselves, once what they import is there.
    except KeyboardInterrupt:
        print(f"{styled('error:', 'error', sys.stderr)} Interrupted.", file=sys.stderr)
        return 130
    return 0


def usage():
    """Returns the map of the commands: of each the first line of its docstring."""
    import ast

    grouped = {title: [*names] for title, names in _GROUPS.items()}
    [*_, last] = grouped.values()
    last += sorted(COMMANDS.keys() - {name for row in grouped.values() for name in row})
    width = max(map(len, COMMANDS)) + 2
    parts = ["The Vision Transformer for Keras 3: keras-vit COMMAND ..."]
    for title, names in grouped.items():
        rows = [styled(title, "title", sys.stdout)]
        for name in filter(COMMANDS.__contains__, names):
            with open(COMMANDS[name], encoding="utf-8") as file:
                says = ast.get_docstring(ast.parse(file.read())) or ""
            rows.append(f"  {name:{width}}{says.partition(chr(10))[0].rstrip('.')}")
        if rows[1:]:
            parts.append("\n".join(rows))
    examples = [
        f"  keras-vit {name} {words}"
        for name, words in _EXAMPLES.items()
        if name in COMMANDS
    ]
    parts.append("\n".join([styled("For example", "title", sys.stdout), *examples]))
    parts.append("keras-vit COMMAND --help shows examples and flags.")
    return "\n\n".join(parts)


def styled(text, style, stream):
    """Returns a text in a style, plain unless a stream is a terminal with colours.

    `style` is "error", "warning", "next" or "title". NO_COLOR (https://no-color.org)
    and TERM=dumb turn it off; what else a terminal can, Rich knows.
    """
    if os.environ.get("NO_COLOR") or stream is None or not stream.isatty():
        return text
    try:
        import rich.console
    except ImportError:  # The message may be that it is not installed.
        return text
    # Consoles of old Windows have colours, but not by these codes.
    if rich.console.Console(file=stream).color_system in (None, "windows"):
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


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
