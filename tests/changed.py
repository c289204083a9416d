"""Prints the tests that know what changed, for `make check`.

Changed is what is not committed, and what the branch has that main has not. The tests
of a file are the one of its name in the mirrored room and those that import or name it;
where there are none, those of the nearest room.
"""

import functools
import pathlib
import subprocess

from imported import imported

ROOT = pathlib.Path(__file__).parents[1]
PRODUCT = ("zoo", "keras_vit", "train", "benchmarks", "keras_vit_start.py")
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
    return sorted(pathlib.Path(name) for name in found if name)


def tests_of(path):
    """Returns the tests of a changed file, a list of paths from the root."""
    if path.suffix == ".md" or path.parts[0] == "docs":
        return [TOP / "docs"]
    if path.suffix == ".ipynb" or path.parts[0] == "colab":
        return [TOP / "colab"]
    if path.parts[0] not in (*PRODUCT, "tests"):
        return []
    if path.parts[0] == "tests" and path.name.startswith("test_"):
        return [path] if (ROOT / path).exists() else []
    name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    if path.parts[0] == "tests":
        name = path.name.removesuffix(".py")
    own = TOP / path.with_name(f"test_{path.stem}.py")
    found = [test for test, names in _tests().items() if test == own or name in names]
    for room in path.parents:
        mirrored = room if room.parts[:1] == ("tests",) else TOP / room
        found = found or [test for test in _tests() if test.parent == mirrored]
    return found


@functools.cache
def _tests():
    """Returns the names that each test imports, and of files that it names."""
    tests = {}
    for file in sorted((ROOT / TOP).rglob("test_*.py")):
        # Files of tests are named with their folders or without.
        words = file.read_text("utf-8").replace('"', "/").split("/")
        tests[file.relative_to(ROOT)] = {*imported(file), *words}
    return tests


if __name__ == "__main__":
    chosen = {str(test) for path in changed_files() for test in tests_of(path)}
    print(*sorted(chosen))
