"""Names that mean nothing are refused before TensorFlow or Keras is imported."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent.parent
MISTAKES = {
    "finetune --dataset=NONE/": "there is no folder",
    "finetune NONE/": "there is no folder",
    "finetune NONE/ --dataset=digits": "Give one data set, not",
    "pretrain": "Give a data set: python -m train.pretrain photos/",
    "few_shot vit-ti16/augreg-imagenet21k NONE/": "there is no folder",
    "finetune --dataset=NONE/a.csv": "there is no file",
    "finetune --dataset=cifra100": "did you mean cifar100",
    "finetune --dataset=vtab/dt": "did you mean dtd",
    "finetune --dataset=digits --model=ViT-Tiny_16": "did you mean ViT-Ti_16",
    "finetune --dataset=digits --model=dinov2-s14/lvd": "Did you mean dinov2-s14/",
    "finetune --dataset=digits --model=ViT-B_16 --weights=imagenet22k": "Did you mean",
    "finetune --dataset=digits --weights=NONE/a.npz": "There is no file",
    "finetune --dataset=digits --image_size=225": "pass --image_size=224.",
    "finetune --dataset=digits --model=BiT-R50x1 --lora_rank=4": "--lora_rank needs",
    "finetune --dataset=digits --model=BiT-R50x1 --layer_decay=0.7": "has none: leave",
    "pretrain --dataset=NONE/": "there is no folder",
    "study --study=learning_rates --dataset=NONE/": "there is no folder",
    "study --study=compute --dataset=digits --models=ViT-Tiny_16": "did you mean ViT",
    "study --study=compute --dataset=digits --weights=vit-b16/imagenet21k "
    "--image_size=224": "from scratch",
    "study --study=examples --dataset=digits --frozen": "trains all weights",
    "study --study=examples --dataset=digits --subsets=50,0%": "'0%', which is no part",
    "study --study=compute --dataset=digits --step_counts=1.5": "not a number of steps",
    "study --study=positions --dataset=digits --positions=3d": "no position embedding",
    "study --study=vtab --dataset=vtab --tasks=mnist": "There is no task 'mnist'",
    "few_shot vit-ti16/imagenet22k --dataset=digits": "Did you mean vit-ti16/",
    "few_shot vit-ti16/augreg-imagenet21k --dataset=NONE/": "there is no folder",
    "predict vit-ti16/imagenet22k HERE": "Did you mean vit-ti16/",
    "predict NONE/model.keras HERE": "there is no such file",
    "predict HERE HERE": "is a photo, no model: pass a model, which in commands comes",
    "predict none HERE": "none: check the path. No model is called 'none'. python -m",
    "evaluate NONE": "There is no file or folder",
    "explain NONE HERE": "There is no file or folder",
    "explain vit-ti16/augreg-imagenet21k NONE/a.jpg": "There is no image",
    "export NONE --format=tflite --out=NONE": "There is no file or folder",
    "publish NONE --to=NONE": "holds no finished run",
    "compare NONE NONE": "holds no finished run",
}


@pytest.fixture(scope="module")
def blocked(tmp_path_factory):
    """A folder whose tensorflow and keras can be found, but not imported."""
    folder = tmp_path_factory.mktemp("blocked")
    for name in ("tensorflow", "keras"):
        (folder / f"{name}.py").write_text(f"raise AssertionError('{name} is loaded')")
    return folder


@pytest.mark.parametrize("words", MISTAKES)
def test_mistake(words, blocked, tmp_path):
    photo = tmp_path / "photo.jpg"
    photo.touch()
    given = words.replace("NONE", str(tmp_path / "none")).replace("HERE", str(photo))
    command, *arguments = given.split()
    found = subprocess.run(
        [sys.executable, "-m", f"train.{command}", *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(blocked), os.environ.get("PYTHONPATH", "")]
            ),
            "KERAS_BACKEND": "tensorflow",
        },
        capture_output=True,
        text=True,
    )
    assert found.returncode == 1
    assert found.stderr.startswith("error: "), found.stderr
    assert MISTAKES[words] in found.stderr
