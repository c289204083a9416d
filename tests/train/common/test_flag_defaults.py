"""Functions behind commands have the defaults of their flags."""

import inspect
import pathlib

import pytest
from in_process import run_command

from train.common.errors import RunError

# The function and the words of a command, and what the function is given besides flags.
FUNCTIONS = {
    "evaluate": ("train.evaluate.evaluation.evaluate", "m.keras"),
    "explain": ("train.explain.report.explain", "m.keras a.jpg --out=x"),
    "export": ("train.export.run.export", "m.keras --format=onnx --out=x"),
    "few_shot": ("train.scoring.linear_probe.run", "m.keras --dataset=digits"),
    "predict": ("train.predict.prediction.predict", "m.keras a.jpg"),
}
GIVEN = {"command", "answer", "show_progress", "dataset", "judge"}


@pytest.mark.parametrize("command", FUNCTIONS)
def test_a_function_has_the_defaults_of_its_flags(command, tmp_path, monkeypatch):
    place, words = FUNCTIONS[command]
    name, _, function = place.rpartition(".")
    module = pytest.importorskip(name)
    parameters = inspect.signature(getattr(module, function)).parameters.values()
    given = {}

    def record(*positional, **arguments):
        given.update(arguments)
        raise RunError("enough")

    monkeypatch.chdir(tmp_path)
    for file in ("m.keras", "a.jpg"):
        pathlib.Path(file).touch()
    monkeypatch.setattr(module, function, record)
    with pytest.raises(SystemExit, match="enough"):
        run_command(command, *words.split())
    defaults = {one.name: one.default for one in parameters}
    for name in given.keys() - GIVEN:
        value = given[name]
        assert (tuple(value) if isinstance(value, list) else value) == defaults[name]
