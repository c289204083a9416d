"""Every path may begin with ~, which shells leave as it is after an equals sign."""

import shutil

import pytest

import keras_vit
import zoo
from train.common.errors import RunError
from train.common.files import make_folder, whole_file, whole_folder
from train.data import checking
from train.models import loaded_model
from train.models.run_directory import RunDirectory


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder, beside an empty current one that stays empty."""
    (tmp_path / "home").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")
    yield tmp_path / "home"
    assert not list((tmp_path / "here").iterdir())


def test_what_is_written(home):
    assert make_folder("~/runs/one") == home / "runs" / "one"
    with whole_file("~/runs/a.txt") as temporary:
        temporary.write_text("a")
    with whole_folder("~/exported") as temporary:
        (temporary / "b.txt").write_text("b")
    assert RunDirectory("~/runs/one").claim({"steps": 1}).config.is_file()
    for name in ("runs/a.txt", "exported/b.txt", "runs/one/config.json"):
        assert (home / name).is_file()


@pytest.mark.parametrize("use", [make_folder, RunDirectory, checking.check])
def test_the_home_of_nobody_is_named(use):
    with pytest.raises(OSError, match="^~nobody_here/a begins with ~nobody_here, a "):
        use("~nobody_here/a")


def test_models_whose_names_go_before_paths(home, goldens, monkeypatch):
    """The rule of zoo.locate is that of --model too."""
    shutil.copy(goldens / "token.npz", home)
    run = home / "vit-b16" / "sam"
    run.mkdir(parents=True)
    keras_vit.load_model("~/token.npz").save(run / "model.keras")
    for path in ("~/token.npz", "~/vit-b16/sam", "~/vit-b16/sam/model.keras"):
        assert loaded_model.load(path).model.output_shape == (None, 10)

    def fetch(card):
        raise zoo.StoreError(f"would fetch {card.handle}")

    monkeypatch.setattr(zoo.catalog.locate, "fetch_card", fetch)
    monkeypatch.chdir(home)
    with pytest.raises(RunError, match="would fetch vit-b16/sam"):
        loaded_model.load("vit-b16/sam")
    assert loaded_model.load("./vit-b16/sam").name == "sam"
