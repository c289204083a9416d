"""A page in a browser."""

import shutil
import subprocess

import pytest


def opened(page, folder, *flags):
    """Opens a page in Chromium with a profile in a folder.

    Returns the DOM in the end and what the browser printed.
    """
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(names)} is installed")
    always = "headless no-sandbox disable-gpu hide-scrollbars enable-logging=stderr "
    always += f"user-data-dir={folder / 'profile'} dump-dom"
    done = subprocess.run(
        [browser, *(f"--{flag}" for flag in (*always.split(), *flags)), page.as_uri()],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr
