"""The command few_shot."""

import pytest
from in_process import function_of, run_command

from train.scoring import linear_probe


@pytest.fixture
def asked(monkeypatch):
    """The arguments of the probe, which does not run."""
    asked = {}

    def run(model, **arguments):
        asked.update(arguments, model=model.source)
        row = {"train_examples": 9, "accuracies": [0.5], "mean": 0.5, "deviation": None}
        rows = [
            row | {"shots": shots, "fewest": shots, "most": shots}
            for shots in arguments["shots"]
        ]
        told = ["The accuracy is 50.00%."]
        return {"rows": rows, "report": "few_shot.md", "verdict": told}

    monkeypatch.setattr(linear_probe, "run", run)
    return asked


def test_the_command(asked, capsys, goldens):
    model = str(goldens / "token.npz")
    run_command("few_shot", model, "--dataset=digits", "--shots=5,1", "--seeds=1")
    output = capsys.readouterr().out
    rows = [line for line in output.splitlines() if line.startswith("| ")]
    assert [row.split("|")[1].strip() for row in rows[2:]] == ["1", "5"]
    assert output.endswith("\nThe accuracy is 50.00%.\nreport few_shot.md\n")
    assert asked.pop("judge").__name__ == "sentences"
    assert "--shots=5,1" in asked["command"]
    expected = {"model": model, "dataset": "digits", "shots": [1, 5], "seeds": 1}
    assert asked.items() >= expected.items()


def test_another_backend_is_refused(asked, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    with pytest.raises(SystemExit, match="TensorFlow"):
        run_command("few_shot", "a.npz", "--dataset=digits")
    assert not asked


def test_the_next_step_is_with_the_model_that_was_measured(tmp_path):
    next_steps = function_of("few_shot", "next_steps")
    (tmp_path / "model.keras").touch()
    run = str(tmp_path)
    assert next_steps(run, "a/") == [("publish", run, "--to=registry")]
    assert next_steps(f"{run}/model.keras", "a/") == []
    handle = "vit-b16/imagenet21k"
    finetune = ("finetune", "--dataset=a/", f"--model={handle}")
    assert next_steps(handle, "a/") == [finetune]
    # They read the same data.
    [again] = next_steps(handle, "a/", ["--relabel=new.csv"])
    assert again == (*finetune, "--relabel=new.csv")
