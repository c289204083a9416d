"""Prints the tests of the rooms that changed, for `make check`.

Changed is what is not committed, and what the branch has that main has not. Tests
mirror the rooms: those of `train/explain/photos.py` are `tests/train/explain`.
"""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).parents[1]


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


def tests_of(path, root=ROOT):
    """Returns the paths of the tests of a changed file.

    Args:
        path: `pathlib.Path`, relative to the root.
        root: `pathlib.Path` of the clone.

    Returns:
        List of `pathlib.Path`, relative to the root.
    """
    if path.parts[0] == "tests":
        is_test = path.name.startswith("test_") and (root / path).exists()
        return [path] if is_test else []
    if path.suffix == ".md":
        return [pathlib.Path("tests/docs")]
    if path.suffix != ".py":
        return []
    mirror = "tests" / path.parent
    own = mirror / f"test_{path.stem}.py"
    if (root / own).exists():
        return [own]
    while not (root / mirror).is_dir():
        mirror = mirror.parent
    if mirror == pathlib.Path("tests"):
        return []
    if mirror.parent != pathlib.Path("tests"):
        return [mirror]
    # A module at the top of a floor: not the tests of all the floor's rooms.
    found = [*(root / mirror).glob("test_*.py"), *(root / mirror).rglob(own.name)]
    return sorted({test.relative_to(root) for test in found})


if __name__ == "__main__":
    chosen = {str(test) for path in changed_files() for test in tests_of(path)}
    print(*sorted(chosen))
