"""Prints the rooms of tests that mirror what changed, for `make check`.

Changed is what is not committed, and what the branch has that main has not.
"""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).parents[1]
PRODUCT = ("zoo", "keras_vit", "train", "benchmarks", "colab", "docs")
TOP = pathlib.Path("tests")


def changed_files():
    """Returns the paths of changed files, new ones too, from the root of the clone."""
    commands = (
        ["git", "diff", "--name-only", "main...HEAD"],
        ["git", "diff", "--name-only", "HEAD"],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    found = set()
    for command in commands:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        found.update(done.stdout.split("\n"))
    return [pathlib.Path(name) for name in found if name]


def tests_of(path):
    """Returns the test or the room of tests of a changed file, None without one."""
    if path.parts[0] == "tests":
        if path.name.startswith("test_"):
            return path if (ROOT / path).exists() else None
        own = path.with_name(f"test_{path.stem}.py")
        return own if (ROOT / own).exists() else path.parent
    if path.suffix == ".md":
        return TOP / "docs"
    if path.parts[0] in PRODUCT:
        rooms = (TOP / room for room in path.parents)
        return next(room for room in rooms if any((ROOT / room).glob("test_*.py")))
    return TOP / "test_start.py" if path.suffix == ".py" else None


if __name__ == "__main__":
    print(*sorted({str(tests_of(path)) for path in changed_files()} - {"None"}))
