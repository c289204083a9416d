"""What no model is called is named before anything heavy is imported."""

import pytest

from train.common.errors import RunError
from train.models import finding


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("a\0b", r"^the model is 'a\\x00b', with a null byte .*: take it out\.$"),
        ("a\0.keras", r"^the model is 'a\\x00\.keras', with a null byte"),
        ("\ud800", r"^the model is '\\ud800', with a null byte or a character that no"),
        (300 * "x", "^The model x+ cannot be used .File name too long.: check its nam"),
        ("hf://a\0b/c", r"^The model hf://a\\x00b/c cannot be used .*: check its name"),
        ("~nobody-here/run", "^~nobody-here/run begins with ~nobody-here, a home"),
        ("nowhere", "^There is no file or folder nowhere: check the path"),
        ("nowhere.keras", "^The model nowhere.keras cannot be used: there is no such"),
        ("https://host/m.onnx", "^https://host/m.onnx is an export: download it for k"),
        ("http://host/m.keras", "^http://host/m.keras is a model of Keras: download"),
        ("https://host/a.jpg?b=1", "^https://host/a.jpg.b=1 is a photo, no model: pas"),
    ],
)
def test_odd_names_are_refused_as_those_of_models(source, told):
    with pytest.raises(RunError, match=told) as caught:
        finding.find(source)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["model.onnx", "m.tflite", "m.keras", "a.jpg"])
def test_a_repository_of_the_hub_is_not_judged_by_its_name(name):
    source = f"hf://org/{name}"
    assert finding.find(source) == finding.FoundModel(source)
