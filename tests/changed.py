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


def tests_of(path, root=ROOT):
    """Returns the paths of the tests of a changed file.

    Args:
        path: `pathlib.Path`, relative to the root.
        root: `pathlib.Path` of the clone.

    Returns:
        List of `pathlib.Path`, relative to the root.
    """
    if _is_test(path):
        return [path] if (root / path).exists() else []
    if path.suffix == ".md" or path.parts[0] == "docs":
        return [pathlib.Path("tests/docs")]
    if path.suffix == ".ipynb" or path.parts[0] == "colab":
        return [pathlib.Path("tests/colab")]
    if path.parts[0] not in (*PRODUCT, "tests"):
        return []
    seen, level = {path}, [path]
    # From the file to those that use it, and on to their users, until there are tests.
    while level:
        users = [user for one in level for user in _users(one, root)]
        tests = {user for user in users if _is_test(user)}
        tests.update(own for one in level for own in _own_tests(one, root))
        if tests:
            return sorted(tests)
        known = {*seen, *(user for user in users if _hands_on(user, root))}
        level = [user for user in dict.fromkeys(users) if user not in known]
        seen.update(level)
    return _tests_of_room(path, root)


def _hands_on(path, root):
    """Whether it is a package's own file that is imported for all that is in it."""
    if path.name != "__init__.py":
        return False
    own = (ast.FunctionDef, ast.ClassDef)
    body = ast.parse(_texts(root)[path]).body
    return not any(isinstance(node, own) and node.name[0] != "_" for node in body)


def _is_test(path):
    return path.parts[0] == "tests" and path.name.startswith("test_")


def _own_tests(path, root):
    """Returns the test of a file's name in the mirrored room, or in one around it."""
    rooms = ["tests" / room for room in path.parents[:-1]]
    names = [room / f"test_{path.stem}.py" for room in rooms]
    return [name for name in names if (root / name).exists()][:1]


def _tests_of_room(path, root):
    """Returns the tests in the nearest room of tests that mirrors a file's."""
    for room in path.parents:
        if found := sorted((root / "tests" / room).glob("test_*.py")):
            return [test.relative_to(root) for test in found]
    return []


def _users(path, root):
    """Returns the files that import a Python file, or name one of another kind."""
    texts = _texts(root)
    if path.suffix != ".py":
        # Files in other rooms have the same names.
        rooms = (*path.parents[:2], "tests" / path.parent, pathlib.Path("tests"))
        is_shared = path.parts[0] == "tests"
        near = [user for user in texts if is_shared or user.parent in rooms]
        return [user for user in near if path.name in texts[user]]
    name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    if path.parts[0] == "tests":
        name = path.stem
    # Tests run commands by their names.
    command = name.removesuffix(".__main__")
    return [
        user
        for user in texts
        if name in _imported(user, root)
        or (_is_test(user) and "." in command and f'"{command}"' in texts[user])
    ]


@functools.cache
def _texts(root):
    """Returns the text of all Python files that may use others, by path."""
    files = [root / "keras_vit_start.py"]
    for folder in ("zoo", "keras_vit", "train", "benchmarks", "tests"):
        files += sorted((root / folder).rglob("*.py"))
    return {
        file.relative_to(root): file.read_text("utf-8")
        for file in files
        # The test of this module names files of all rooms.
        if file.is_file() and file.name not in ("changed.py", "test_changed.py")
    }


@functools.cache
def _imported(path, root):
    return set(imported(root / path))


if __name__ == "__main__":
    chosen = {str(test) for path in changed_files() for test in tests_of(path)}
    print(*sorted(chosen))
