"""No address that nobody owns: whoever registers it would serve code to our users."""

import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
# Patterns of places to get this package from or read about it, and their finds.
OURS = {
    r"(?i)\w+://[^\s\"'`)>]*keras[-_]vit": "https://github.com/keras-vit/x",
    r"(?i)\b(?!vit-keras)[\w.-]+/keras[-_]vit\.git\b": "git@host:a/keras_vit.git",
    r"git\+\w+://": "pip install git+https://example.org/x",
    r"colab\.research\.google\.com": "https://colab.research.google.com/github/a",
    # An installation by name.
    r"(?i)(?:pip|uv|pipx|conda)\b.*? install\b[^\n.]*?[\s'\"]keras[-_]vit\b": (
        "$ pip install --upgrade keras-vit"
    ),
}
# Metadata has these, which elsewhere are code.
METADATA = (
    r"(?im)^\s*(?:url|home[-_]?page|project_urls|download_url|repository|documentation)"
    r"\s*[=:]"
)


def test_no_file_has_an_address_that_nobody_owns():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a clone of git")
    wrong, read = [], 0
    for path in map(ROOT.joinpath, done.stdout.splitlines()):
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue  # no text, or removed and not committed yet
        read += 1
        is_metadata = path.name in ("setup.cfg", "pyproject.toml")
        for pattern in [*OURS, *[METADATA] * is_metadata]:
            found = re.search(pattern, text)
            if found and path != pathlib.Path(__file__):
                wrong.append(f"{path}: {found[0][:80]}")
    assert read > 300
    assert wrong == []


def test_such_addresses_are_found_and_others_left_alone():
    assert all(re.search(pattern, line) for pattern, line in OURS.items())
    assert re.search(METADATA, "[metadata]\nurl = https://example.org/x")
    for line in (
        'pip install ".[export]"',
        "https://github.com/google-research/big_transfer",
        "https://github.com/faustomorales/vit-keras",
    ):
        assert not any(re.search(pattern, line) for pattern in OURS)
