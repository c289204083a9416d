"""--batch_size=auto: as few micro-batches as fit in memory."""

import json
import types

import pytest
import same_runs
import tensorflow as tf

from train import recipes
from train.common.errors import RunError
from train.common.setting import AUTO
from train.engine import devices
from train.engine.tensorflow_backend import TensorFlowDevices, TensorFlowTrainer
from train.models.run_directory import RunDirectory
from train.run import micro_batches, training
from train.run.classification import FineTuning
from zoo.common import machine

pytestmark = pytest.mark.usefixtures("empty_figures")

MB = 2**20


def test_sizes_cut_the_images_equally():
    assert micro_batches.sizes(1) == [1]
    assert micro_batches.sizes(24) == [24, 12, 6, 3, 1]
    assert micro_batches.sizes(10**12 + 39) == [10**12 + 39, 1]


def filled_above(monkeypatch, images):
    """Pretends that an accelerator computes, which has memory for so many images."""
    accumulate = TensorFlowTrainer._accumulate

    def checked(self, inputs, labels, batch_size):
        if inputs.shape[0] // self.micro_batches > images:
            raise tf.errors.ResourceExhaustedError(None, None, "OOM")
        return accumulate(self, inputs, labels, batch_size)

    monkeypatch.setattr(TensorFlowDevices, "is_cpu", False)
    monkeypatch.setattr(TensorFlowTrainer, "_accumulate", checked)


def test_an_accelerator_is_tried_and_the_run_is_as_if_the_number_was_given(
    short_recipe, short_run, monkeypatch, tmp_path, capsys
):
    filled_above(monkeypatch, 6)
    auto = short_recipe.override(micro_batches=AUTO)
    task = FineTuning(auto)
    training.run(task, run_dir=tmp_path)
    assert (task.micro_batches, task.recipe) == (4, auto)
    assert "\n4 micro-batches of 4 images\n" in capsys.readouterr().out
    same_runs.assert_same_bits(short_run, tmp_path)
    file = tmp_path / "micro_batches.json"
    written = {"micro_batches": 4, "batch_size": 16, "devices": 1}
    assert json.loads(file.read_text()) == written
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["micro_batches"] == AUTO
    assert same_runs.report(tmp_path)["config"]["micro_batches"] == 4

    # The same number again, without a trial.
    directory = RunDirectory(tmp_path)
    file.write_text(json.dumps(written | {"micro_batches": 8}))
    assert micro_batches.number_of(task, None, directory) == 8
    file.write_text("{}")
    with pytest.raises(RunError, match="micro_batches.json is damaged .*as a number"):
        micro_batches.number_of(task, None, directory)
    # Another number is allowed if the first no longer fits.
    given = FineTuning(short_recipe.override(micro_batches=16))
    with training.begun(given, tmp_path, devices.start("one"), data=None):
        pass
    with pytest.raises(RunError, match="micro_batches 4 .now 'auto'"):
        training.run(auto, run_dir=short_run)


def test_not_even_one_image_fits(short_recipe, monkeypatch, tmp_path):
    filled_above(monkeypatch, 0)
    task = FineTuning(short_recipe.override(micro_batches=AUTO))
    with pytest.raises(RunError, match="Not even one image .*memory: pass --remat, "):
        training.run(task, run_dir=tmp_path / "run")
    assert not (tmp_path / "run" / "micro_batches.json").exists()


class Simulated:
    """A model of 100 MB beside 30 MB an image; two micro-batches also need 50 MB."""

    def __init__(self, trained_bytes=10 * MB):
        self.trained_bytes, self.batch_bytes = trained_bytes, 20 * MB
        self.tried = []

    def peak(self, size):
        self.tried.append(size)
        return (1000 + 100 + 30 * size + 50 * (size < 256)) * MB


@pytest.fixture
def memory(monkeypatch):
    """Sets how many MB are left."""

    def leave(available):
        monkeypatch.setattr(machine, "resident_bytes", lambda: 1000 * MB)
        monkeypatch.setattr(machine, "available_bytes", lambda: available * MB)

    return leave


@pytest.mark.parametrize(
    ("available", "expected"),
    [(250, 1), (400, 1), (1000, 16), (2000, 32), (5100, 128), (20_000, 256)],
)
def test_the_memory_of_a_processor_is_never_exceeded(memory, available, expected):
    memory(available)
    trials = Simulated()
    size, facts = micro_batches._measured(trials, micro_batches.sizes(256))
    most = 0.8 * available - trials.batch_bytes / MB
    # Exact where more than one size was measured; 400 MB have room for 4 images.
    assert size == expected
    assert 150 + 30 * size <= facts["needed_bytes"] / MB <= most
    assert facts["available_bytes"] == available * MB
    assert all(150 + 30 * tried <= most for tried in trials.tried)
    assert len(trials.tried) <= 4


def test_a_processor_without_memory(memory):
    memory(200)
    trials, large = Simulated(), Simulated(trained_bytes=100 * MB)
    assert micro_batches._measured(trials, [2, 1])[0] is None
    # A number that is sure to be too large is not tried.
    assert micro_batches._measured(large, [2, 1])[0] is None
    assert (trials.tried, large.tried) == ([1], [])
    memory(0)
    with pytest.raises(RunError, match="not Linux: pass --micro_batches as a number"):
        micro_batches._measured(trials, [2, 1])


def test_a_command_measures(forks, tmp_path):
    flags = ["--dataset=digits", "--smoke", "--batch_size=auto", "--run_dir=run"]
    output = forks.output(tmp_path, "train.finetune", *flags, "--steps=2")
    # A tiny model, of which the whole batch fits.
    assert "\n1 micro-batch of 16 images, which needs " in output
    found = json.loads((tmp_path / "run" / "micro_batches.json").read_text())
    assert 0 < found["needed_bytes"] <= 0.8 * found["available_bytes"]


def test_auto_stays_where_other_values_change():
    base = recipes.for_dataset("cifar10")
    auto = base.override(micro_batches=AUTO)
    assert auto.published == base.published
    assert auto.override(batch_size=24).micro_batches == AUTO
    assert base.override(batch_size=24, micro_batches=AUTO).micro_batches == AUTO
    with pytest.raises(ValueError, match="at least 1, or auto, got .many"):
        base.override(micro_batches="many")


def test_several_machines_and_devices(short_recipe):
    auto = short_recipe.override(micro_batches=AUTO)
    one = types.SimpleNamespace(has_hosts=True, count=4)
    with pytest.raises(RunError, match="one machine, .*--micro_batches as a number"):
        micro_batches.check(auto, one)
    # A batch that devices cannot share is refused before the data are loaded.
    three = TensorFlowDevices(types.SimpleNamespace(num_replicas_in_sync=3))
    with pytest.raises(RunError, match="batch of 16 cannot be shared equally by 3"):
        micro_batches.check(auto, three)
