"""Prints the tests that know what changed, for `make check`.

Changed is what is not committed, and what the branch has that main has not. The tests
of a file are the one of its name in the mirrored room and those that import or name it;
where there are none, the tests of the modules that use it, else those of its room.
"""

import ast
import functools
import pathlib
import subprocess

from imported import imported

ROOT = pathlib.Path(__file__).parents[1]
TOP = pathlib.Path("tests")
PRODUCT = ("zoo", "keras_vit", "train", "benchmarks", "keras_vit_start.py")


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
    """Returns the paths of the tests of a changed file, from the root of the clone."""
    if _is_test(path):
        return [path] if (ROOT / path).exists() else []
    if path.suffix == ".md" or path.parts[0] == "docs":
        return [TOP / "docs"]
    if path.suffix == ".ipynb" or path.parts[0] == "colab":
        return [TOP / "colab"]
    if path.parts[0] not in (*PRODUCT, "tests"):
        return []
    seen, level = {path}, [path]
    # From the file to those that use it, and on to their users, until there are tests.
    while level:
        users = {user for one in level for user in _users(one)}
        tests = {user for user in users if _is_test(user)}
        tests.update(own for one in level for own in _own_tests(one))
        if tests:
            return sorted(tests)
        level = [user for user in users - seen if not _hands_on(user)]
        seen |= users
    rooms = (sorted((ROOT / TOP / room).glob("test_*.py")) for room in path.parents)
    return [test.relative_to(ROOT) for test in next(filter(None, rooms), ())]


def _is_test(path):
    return path.parts[0] == "tests" and path.name.startswith("test_")


def _own_tests(path):
    """Returns the test of a file's name in the mirrored room, or in one around it."""
    names = [TOP / room / f"test_{path.stem}.py" for room in path.parents[:-1]]
    return [name for name in names if (ROOT / name).exists()][:1]


def _hands_on(path):
    """Whether it is a package's own file that is imported for all that is in it."""
    own = (ast.FunctionDef, ast.ClassDef)
    return path.name == "__init__.py" and not any(
        isinstance(node, own) and node.name[0] != "_"
        for node in ast.parse(_texts()[path]).body
    )


def _users(path):
    """Returns the files that import a Python file, or name one of another kind."""
    texts = _texts()
    if path.suffix != ".py":
        # Files in other rooms have the same names.
        rooms = (*path.parents[:2], TOP / path.parent, TOP)
        is_shared = path.parts[0] == "tests"
        near = [user for user in texts if is_shared or user.parent in rooms]
        return [user for user in near if path.name in texts[user]]
    name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    if path.parts[0] == "tests":
        name = path.stem
    # Tests run commands by their names.
    command = f'"{name.removesuffix(".__main__")}"'
    return [
        user
        for user in texts
        if name in _imported(user)
        or (_is_test(user) and "." in command and command in texts[user])
    ]


@functools.cache
def _texts():
    """Returns the text of all Python files that may use others, by path."""
    files = [ROOT / "keras_vit_start.py"]
    for folder in ("zoo", "keras_vit", "train", "benchmarks", "tests"):
        files += sorted((ROOT / folder).rglob("*.py"))
    # The test of this module names files of all rooms.
    others = [file for file in files if not file.stem.endswith("changed")]
    return {file.relative_to(ROOT): file.read_text("utf-8") for file in others}


@functools.cache
def _imported(path):
    return set(imported(ROOT / path))


if __name__ == "__main__":
    chosen = {str(test) for path in changed_files() for test in tests_of(path)}
    print(*sorted(chosen))
