"""The examples in the docstrings run; those of keras_vit in its own test."""

import doctest
import importlib
import pkgutil

import pytest

import keras_vit_start
import train
import zoo

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def modules(package):
    """The modules of a package but those that are commands."""
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [module.name for module in found if not module.name.endswith("__main__")]


def run(name, **names):
    module = importlib.import_module(name)
    failed, attempted = doctest.testmod(
        module, optionflags=FLAGS, extraglobs=names or None
    )
    assert not failed
    return attempted


@pytest.mark.parametrize("name", ["zoo", *modules(zoo)])
def test_zoo(name, monkeypatch, tmp_path, pytestconfig):
    # Some read goldens; none may write into the checkout.
    (tmp_path / "tests").symlink_to(pytestconfig.rootpath / "tests")
    monkeypatch.chdir(tmp_path)
    run(name, zoo=zoo)


COMMANDS = {f"train.{name}" for name in keras_vit_start.COMMANDS} - {"train.predict"}


@pytest.mark.parametrize("name", sorted({*modules(train)} - COMMANDS))
def test_train(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    import keras_vit

    run(name, keras_vit=keras_vit)
