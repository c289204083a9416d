"""Rooms that need Keras on TensorFlow, and a run that tests of several rooms share."""

import os

import pytest

if os.environ.get("KERAS_BACKEND", "tensorflow") != "tensorflow":
    collect_ignore = ["evaluate", "explain", "export", "models/exports", "few_shot"]
    collect_ignore += ["study", "compare", "publish", "scoring/test_linear_probe.py"]
    collect_ignore += ["run/test_photo_bits.py", "common/test_home.py"]


@pytest.fixture
def empty_figures(monkeypatch):
    """Figures are files without content: to render those of a run takes seconds."""
    from train.reports import figures

    monkeypatch.setattr(figures, "save", lambda figure, path: path.touch())


@pytest.fixture(scope="session")
def short_recipe():
    """Two steps of a tiny network, with all that has a state or draws numbers."""
    import keras_vit
    from train import recipes

    config = keras_vit.ViTConfig(
        hidden_size=16, num_layers=1, num_heads=2, mlp_dim=32, patch_size=8
    )
    smoke = recipes.for_dataset("digits").smoke()
    return smoke.override(
        **{"model": config, "image_size": (32, 48), "crop": "resize", "seed": 3},
        **{"steps": 2, "eval_every": 2, "checkpoint_every": 2, "warmup_steps": 0},
        **{"micro_batches": 4, "dropout_rate": 0.1, "average_decay": 0.9},
        mixup=0.2,
    )


@pytest.fixture(scope="session")
def short_run(short_recipe, tmp_path_factory):
    """The finished run of these settings, whose pictures are empty."""
    from train.reports import figures
    from train.run import training

    folder = tmp_path_factory.mktemp("runs") / "digits"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "save", lambda figure, path: path.touch())
        training.run(short_recipe, run_dir=folder, command="keras-vit finetune ...")
    return folder


@pytest.fixture(scope="session", params=["labels", "number"])
def task_run(request, tmp_path_factory):
    """The finished runs of the tasks beside classes, on photos of a table each."""
    import labelled_photos

    from train.reports import figures
    from train.run import training

    name = request.param
    folder = tmp_path_factory.mktemp(f"task-{name}")
    dataset = labelled_photos.table(folder / "photos", name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "save", lambda figure, path: path.touch())
        task = labelled_photos.task_of(dataset, name, dropout_rate=0.1)
        training.run(task, run_dir=folder / "run", command="keras-vit finetune ...")
    return name, dataset, folder / "run"
