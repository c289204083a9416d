import doctest
import functools
import importlib
import inspect
import pkgutil
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.explain import figures

# The fourteen share one template, whose example builds a model.
VARIANTS_RUN = {"ViT_Ti16", "R_ViT_Ti16"}
RETURNS_NOTHING = {"Features", "Filters", "ViTConfig"}
PUBLIC = {
    name: getattr(package, name)
    for package in (keras_vit, keras_vit.layers, keras_vit.explain, figures)
    for name in package.__all__
}


def test_import_takes_only_its_backend_and_says_nothing():
    """`test_backends` checks it of the others."""
    backend = keras.backend.backend()
    # Keras itself imports jax under the other backends, where it is installed.
    unwanted = {"tensorflow", "torch", "train"} - {backend}
    code = f"""
import sys, keras
print("IMPORTED", file=sys.stderr)
import keras_vit
found = {unwanted} & set(sys.modules)
assert not found, found
"""
    process = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout == ""
    # TensorFlow tells of the machine before.
    before, _, after = process.stderr.partition("IMPORTED\n")
    assert after == ""
    assert backend == "tensorflow" or before == ""


def test_names_that_moved_say_where():
    for name in ("BiTResNet", "BiT_R50x1"):
        with pytest.raises(
            AttributeError, match=f"'{name}': BiT is keras_vit.models.bit"
        ):
            getattr(keras_vit, name)
    with pytest.raises(AttributeError, match="'MLP': it is keras_vit.layers.MLP"):
        _ = keras_vit.MLP
    with pytest.raises(
        AttributeError, match="'keras_vit' has no attribute 'ViT_B17'.$"
    ):
        _ = keras_vit.ViT_B17


@pytest.mark.parametrize(
    "name", [name for name, thing in PUBLIC.items() if callable(thing)]
)
def test_documentation_has_all_its_parts(name):
    thing = PUBLIC[name]
    text = inspect.getdoc(thing)
    parameters = inspect.signature(thing).parameters.values()
    catch_all = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    own = [one.name for one in parameters if one.kind not in catch_all]
    if isinstance(thing, type) and "__init__" not in vars(thing):
        own = []  # those of the class that it is made of
    sections = ["Source:", "Example:", *(["Args:"] if own else [])]
    if isinstance(thing, type) and issubclass(thing, keras.layers.Layer):
        sections += ["Call arguments:", "Returns:"]
    elif name not in RETURNS_NOTHING:
        sections += ["Returns:"]
    for section in sections:
        assert f"\n{section}\n" in text, section
    assert ">>> " in text.partition("\nExample:\n")[2]
    for parameter in own:
        assert f"\n    {parameter}: " in text, parameter


def modules():
    packages = pkgutil.walk_packages(keras_vit.__path__, "keras_vit.")
    return ["keras_vit", *(package.name for package in packages)]


# Many examples begin with the same model, and few change it: those have one alone.
made_once = functools.cache(keras_vit.VisionTransformer)


@pytest.mark.parametrize("name", modules())
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    names = {**vars(module), **PUBLIC, "keras": keras, "keras_vit": keras_vit, "np": np}
    if "models" not in name:
        names["VisionTransformer"] = made_once
    failures = []
    runner = doctest.DocTestRunner(
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False
    )
    for test in doctest.DocTestFinder().find(module, globs=names):
        function = test.name.rpartition(".")[2]
        variant = name == "keras_vit.models.variants"
        if not variant or function in VARIANTS_RUN:
            runner.run(test, out=failures.append)
    assert not runner.failures, "".join(failures)


def test_examples_of_the_variants_are_run():
    module = importlib.import_module("keras_vit.models.variants")
    tests = doctest.DocTestFinder().find(module)
    with_examples = {test.name.rpartition(".")[2] for test in tests if test.examples}
    assert with_examples > VARIANTS_RUN
    assert len(with_examples) == len(keras_vit.VARIANTS)
