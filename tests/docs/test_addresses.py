"""No address that nobody owns: whoever registers it would serve code to our users."""

import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
HERE = pathlib.Path(__file__).relative_to(ROOT).as_posix()
# Where people would get this package from, or read about it.
OURS = {
    "an address with our name": r"(?i)\w+://[^\s\"'`)>]*keras[-_]vit",
    "a repository with our name": r"(?i)\b(?!vit-keras)[\w.-]+/keras[-_]vit\.git\b",
    "an installation from git": r"git\+\w+://",
    "a notebook that Colab would open": r"colab\.research\.google\.com",
    "an installation by name": r"(?i)(?:pip|uv|pipx|conda)\b.*? install\b[^\n.]*?"
    r"[\s'\"]keras[-_]vit\b",
    "a page of the project": r"(?im)^\s*(?:url|home[-_]?page|project_urls|download_url"
    r"|repository|documentation)\s*[=:]",
}
# Of the names of metadata, which elsewhere are code.
METADATA = {"setup.cfg", "pyproject.toml"}


def tracked():
    """Returns the paths of all files of the repository, as text."""
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip("not a clone of git")
    return done.stdout.splitlines()


def addresses(path, text):
    """Returns what is wrong with a file."""
    return [
        f"{path}: {what}: {found[0][:80]}"
        for what, pattern in OURS.items()
        if what != "a page of the project" or path in METADATA
        for found in re.finditer(pattern, text)
    ]


def test_no_file_has_an_address_that_nobody_owns():
    wrong, read = [], 0
    for path in tracked():
        if path == HERE:
            continue
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue  # no text, or removed and not committed yet
        read += 1
        wrong += addresses(path, text)
    assert read > 300
    assert wrong == []


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("setup.cfg", "url = https://example.org/x"),
        ("README.md", 'pip install "keras_vit[export] @ git+https://example.org/x"'),
        ("README.md", "pip install --upgrade keras-vit"),
        ("train/x.py", "pip install 'keras_vit[export]'"),
        ("docs/x.md", "https://github.com/keras-vit/keras_vit/blob/main/README.md"),
        ("colab/x.ipynb", "https://colab.research.google.com/github/a/b/x.ipynb"),
    ],
)
def test_such_addresses_are_found(path, line):
    assert addresses(path, line)


@pytest.mark.parametrize(
    "line",
    [
        'pip install ".[export]"',
        "https://github.com/google-research/big_transfer",
        "https://github.com/faustomorales/vit-keras",
    ],
)
def test_other_addresses_are_left_alone(line):
    assert addresses("README.md", line) == []
