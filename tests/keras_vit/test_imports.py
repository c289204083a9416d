import functools
import inspect
import subprocess
import sys

import keras
import numpy as np
import pytest
from test_examples import modules, run

import keras_vit
from keras_vit.explain import figures
from keras_vit.models import variants

# The fourteen share one template, whose example builds a model.
VARIANTS = {name for name in vars(variants) if "ViT_" in name}
VARIANTS_RUN = {"ViT_Ti16", "R_ViT_Ti16"}
RETURNS_NOTHING = {"Features", "Filters", "ViTConfig"}
PUBLIC = {
    name: getattr(package, name)
    for package in (keras_vit, keras_vit.layers, keras_vit.explain, figures)
    for name in package.__all__
}


def test_import_takes_only_its_backend_and_says_nothing():
    """`test_backends` checks it of the others."""
    # Keras itself imports jax under the other backends, where it is installed.
    unwanted = {"tensorflow", "torch", "train"} - {keras.backend.backend()}
    code = (
        "import sys, keras\nprint('IMPORTED', file=sys.stderr)\nimport keras_vit\n"
        f"found = {unwanted} & set(sys.modules)\nassert not found, found"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    # TensorFlow tells of the machine before.
    _, _, after = process.stderr.partition("IMPORTED\n")
    assert (process.stdout, after) == ("", "")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("BiTResNet", "'BiTResNet': BiT is keras_vit.models.bit"),
        ("MLP", "'MLP': it is keras_vit.layers.MLP"),
        ("ViT_B17", "'keras_vit' has no attribute 'ViT_B17'.$"),
    ],
)
def test_names_that_are_elsewhere_say_where(name, said):
    with pytest.raises(AttributeError, match=said):
        getattr(keras_vit, name)


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


# Many examples begin with the same model, and few change it: those have one alone.
made_once = functools.cache(keras_vit.VisionTransformer)


@pytest.mark.parametrize("name", ["keras_vit", *modules(keras_vit)])
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = PUBLIC | {"keras": keras, "keras_vit": keras_vit, "np": np}
    if "models" not in name:
        names["VisionTransformer"] = made_once
    if name == variants.__name__:
        assert len(VARIANTS) == len(keras_vit.VARIANTS)
        for one in VARIANTS - VARIANTS_RUN:
            monkeypatch.delattr(variants, one)
    run(name, **names)
