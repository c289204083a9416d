"""What every command says of wrong lines, settings and values, before any work."""

import functools
import json
import os
import pathlib
import subprocess
import sys

import command_outcomes
import pytest

import keras_vit_start

ROOT = pathlib.Path(__file__).parents[3]
COMMANDS = sorted(keras_vit_start.COMMANDS.keys() - {"zoo"})
# The words of a command, further words, and the parts that the message has.
WRONG = {
    "finetune": {
        "": "Give a data set: | finetune photos/, --dataset, or --config | --help",
        "none/": "there is no folder",
        "none/ --dataset=digits": "Give one data set, not",
        "--dataset=x/ --recipe=own": "no recipe 'own' | own_data, | vtab",
        "--config=none.yaml": "none.yaml is not there: check the path",
        "--config=run": "is a folder: pass its config.json",
        "--config=photo.jpg": "must end in .yaml, .yml or .json",
        "--dataset=digits steps=3": "'steps=3'",
    },
    "finetune --dataset=digits": {
        "--model=ViT-Tiny_16": "did you mean ViT-Ti_16",
        "--model=dinov2-s14/lvd": "Did you mean dinov2-s14/",
        "--model=ViT-Ti_16 --weights=imagenet22k": "ViT-Ti_16 | 'imagenet22k' | "
        "augreg-imagenet21k | the path of a file",
        "--weights=none/a.npz": "There is no file | none/a.npz | check the path",
        "--image_size=225": "225x225 | patch size 4 | pass --image_size=224.",
        "--image_size=abc": "--image_size=abc | HEIGHT,WIDTH",
        "--model=BiT-R50x1 --lora_rank=4": "--lora_rank needs",
        "--model=BiT-R50x1 --layer_decay=0.7": "has none: leave",
        "--batch_size=6 --micro_batches=4": "--batch_size=6 | --micro_batches=4 | "
        "equal parts",
        "--batch_size=auto --micro_batches=4": "auto chooses | leave out "
        "--micro_batches=4",
        "--batch_size=much": "--batch_size=much must be an integer, or auto",
        "--mesh=rows:4": "--mesh=rows:4 must be | data:2,model:4",
        "--batch_size=0": "--batch_size must be at least 1, got 0",
        "--batch_size=1000000007": "--batch_size must be at most 1,048,576",
        "--micro_batches=0": "--micro_batches must be at least 1, or auto, got 0",
        "--steps=0": "--steps must be at least 1, got 0",
        "--steps=10 --warmup_steps=10": "--warmup_steps=10 | less than --steps=10",
        "--warmup_steps=-1": "--warmup_steps=-1",
        "--validation_fraction=1": "--validation_fraction | got 1.0",
        "--validation_fraction=-0.1": "--validation_fraction | got -0.1",
        "--learning_rate=0": "--learning_rate must be above 0, got 0.0",
        "--learning_rate=nan": "--learning_rate=nan must be finite",
        "--seed=-1": "--seed must be from 0 to 4294967295, got -1",
        "--schedule=step": "--schedule=step must be one of cosine|linear",
        "--weight_decay=0.1": "--weight_decay=0.1 does | --optimizer=adam",
        "--frozen --lora_rank=4": "--frozen=true trains | --lora_rank=4",
        "--early_stopping=3 --validation_fraction=0": "--early_stopping=3 | "
        "--validation_fraction",
        "--class_weights=equal": "--class_weights must be balanced | 'equal'",
        "--layer_decay=0": "--layer_decay must be in (0, 1], got 0.0",
        "--train_examples=0": "--train_examples must be at least 1",
        "--dropout_rate=1": "--dropout_rate must be in",
        "--rand_augment=2": "--rand_augment=2 | 2,15",
        "--random_erasing=1.1": "--random_erasing must be in [0, 1], got 1.1",
        "--mixup=-0.1": "--mixup must be at least 0, got -0.1",
        "--cutmix=-1": "--cutmix must be at least 0, got -1.0",
        "--mixup=0.2 --cutmix=1": "--mixup=0.2 and --cutmix=1.0 | of them to 0",
        "--flip=maybe": "--flip=maybe must be yes or no",
        "--bits=17": "--bits=17 must be an integer in the range",
        "--epochs=3 --steps=5": "--steps=5 counts steps | --epochs=3 leaves",
        "--epochs=0": "--epochs must be above 0, got 0.0",
        "--num_epochs=3": "no flag --num_epochs: use --epochs.",
        "--minutes=0": "--minutes=0 must be",
        "--minutes=2 --steps=5": "--steps is of one training | --minutes=2 finds",
        "--models=ViT-S_16": "--models is of a search | pass --minutes",
        "--seeds=1": "--seeds=1 must be",
        "--seeds=2 --extend": "--extend is of one run | --seeds=2",
        "--seeds=2 --minutes=1": "--minutes=1 is too short | pass --minutes=2",
        "--lr=0.1": "no flag --lr: | --learning_rate.",
        "--num_classes=10": "--dataset (the classes are those of the data set)",
        "--label-smoothing=0.1": "write --label_smoothing.",
        "--run_dir=gs://bucket/run": "--run_dir=gs://bucket/run is a URL",
        "--stepz=3": "did you mean --steps?",
        "--qqq": "no flag --qqq: | keras-vit finetune --help lists all.",
    },
    "pretrain": {
        "": "Give a data set: keras-vit pretrain photos/ | --help",
        "--dataset=x/ --recipe=augreg": "no recipe 'augreg' | augreg_imagenet21k_none",
    },
    "masked_patches --dataset=digits": {
        "--corrupted_fraction=2": "--corrupted_fraction must be above 0",
    },
    "study --dataset=digits": {
        "--study=nix": "must be one of compute|examples|learning_rates|",
        "--study=compute --models=ViT-Tiny_16": "did you mean ViT",
        "--study=compute --weights=vit-b16/imagenet21k --image_size=224": "scratch",
        "--study=compute --step_counts=1.5": "'1.5' | not a number of steps",
        "--study=compute --frozen": "leave --frozen and",
        "--study=compute --extend": "--extend does nothing here, for",
        "--study=examples --frozen": "trains all weights",
        "--study=examples --subsets=50,0%": "--subsets has '0%', which is no part",
        "--study=examples --subsets=half": "--subsets has 'half'",
        "--study=learning_rates --learning_rates=0.1,-1": "--learning_rates",
        "--study=positions --positions=3d": "no position embedding '3d'",
        "--study=vtab --find_learning_rate": "leave it out, or | learning_rates",
    },
    "study": {
        "--study=vtab --dataset=vtab --tasks=mnist": "no task 'mnist': --tasks takes",
    },
    "few_shot": {
        "": "few_shot --help",
        "a.keras": "The data set is missing. Give one model",
        "--dataset=digits": "one model",
        "vit-ti16/imagenet22k --dataset=digits": "Did you mean vit-ti16/",
        "none/a.npz --dataset=digits": "none/a.npz",
        "run --dataset=digits --shots=1,0": "--shots=1,0",
    },
    "predict": {
        "vit-ti16/imagenet22k photo.jpg": "Did you mean vit-ti16/",
        "none/model.keras photo.jpg": "there is no such file",
        "photo.jpg photo.jpg": "is a photo, no model: pass a model, which in commands",
        "none photo.jpg": "none: check the path. No model is called 'none'. keras-vit",
        "a.keras": "The photos are missing. Give a model and photos",
        "a.keras b.jpg --gallery": "--gallery=VALUE needs its value. An .html file",
        "a.keras b.jpg --threshold=0.5": "use --top (each answer has its probability",
        "run photo.jpg --out=s3://bucket/folder": "--out=s3://bucket/folder is a URL | "
        "pass a path, and copy | by aws s3 sync.",
        "run photo.jpg --features=gs://b/x.npz": "--features=gs://b/x.npz is | "
        "by gcloud storage rsync.",
        "run photo.jpg --sort_into=https://b/x": "--sort_into=https://b/x is a URL",
        "run photo.jpg --gallery=hf://b/x.html": "--gallery=hf://b/x.html is a URL",
        "run photo.jpg --engine=keras --precision=int8": "not in int8: choose one of",
    },
    "evaluate": {
        "": "evaluate --help",
        "none": "There is no file or folder",
        "run digits --dataset=cifar10": "one data set",
        "run --output_dir=x": "--out_dir.",
    },
    "explain": {
        "none photo.jpg": "There is no file or folder",
        "vit-ti16/augreg-imagenet21k none/a.jpg": "There is no image",
        "a.keras": "folder/ --out=DIR. Missing: photos",
        "a.keras b.jpg --out=": "folder/ --out=DIR. Missing: --out",
    },
    "export": {
        "none --format=tflite --out=none": "There is no file or folder",
        "run --format=tflight": "'tflight' is not a format: choose from",
        "run --out=x": "No format is given: choose from saved_model",
        "run --format=onnx --out=x --uint8": "uint8 is an option of tflite-int8",
        "run --format=onnx --out=x --min_agreement=1.5": "min_agreement | 1.5",
        "run --format=onnx": "--out is missing. Give one model and a folder: "
        "keras-vit export MODEL --format=onnx --out=DIR",
        "run --quantize": "--format.",
    },
    "publish": {
        "": "publish --help",
        "run": "--to is missing. The registry: a folder of models.",
        "--to=none": "one run directory",
        "none --to=none": "There is no run directory none: check the path",
    },
    "compare": {
        "none none": "There is no run directory none: check the path",
        "none": "Give two runs or more",
        "run run --out=x": "--output.",
    },
}
# Text of a file of settings, and the parts of the message.
WRONG_SETTINGS = {
    "dataset: digits\nlearning_rat: 1": "'learning_rat': did you mean learning_rate?",
    "dataset: digits\nqqqqq: 1": "no setting 'qqqqq': --print_config shows all",
    "dataset: digits\nrun_dir: x": "no setting 'run_dir': pass --run_dir",
    "dataset: digits\npublished: '99'": "no setting 'published'",
    "dataset: digits\nsteps: 1.5": "steps must be a whole number, got 1.5",
    "dataset: digits\nsteps: yes": "steps must be a whole number, got True",
    "dataset: digits\nlearning_rate: fast": "learning_rate must be a number, got 'fast",
    "dataset: digits\nflip: 1": "flip must be true or false, got 1",
    "dataset: digits\nmomentum: 1": "momentum must be in",
    "dataset: digits\nclip_norm: 0": "clip_norm must be above 0",
    "dataset: digits\nrand_augment: [2]": "must be a list of numbers | or null, got",
    "dataset: digits\nmodel: {sides: 3}": "model must be a text or the sizes of a ViTC",
    "dataset: digits\nmixup: 1\ncutmix: 1": "yaml: mixup=1.0 and cutmix=1.0 mix",
    "dataset: x/\nbatch_size: auto\nmicro_batches: 2": "leave out micro_batches=2, or",
    "dataset: [digits]": "dataset must be a text",
    "dataset: digits\nsteps: 3\nsteps: 4": "yaml has 'steps' twice: leave one out",
    "model: {mlp_dim: 3, 'mlp_dim': 4}": "yaml has 'mlp_dim' twice: leave one out",
    '{"steps": 3, "steps": 3}': "json has 'steps' twice: leave one out",
    '{"model": {"steps": 3, "steps": 4}}': "json has 'steps' twice: leave one out",
    '{"steps": 3': "as JSON | write settings such as",
    "steps: 3": "has no dataset: pass --dataset",
    "- digits": "has no settings by name: write them such as steps: 500",
    "dataset: &a digits\nweights: *a": "line 2 refers to another | repeat the value",
    "dataset: [": "cannot be read as YAML (while parsing",
    "dataset: !!python/object/apply:os.getcwd []": "could not determine a constructor",
    "# " + "x" * 2**16: "more than 65,536 bytes",
}
LINES = {
    f"{words} {more}": parts
    for words, rows in WRONG.items()
    for more, parts in rows.items()
    if words.split()[0] in COMMANDS
}
FILES = {
    f"{number}.{'json' if text[0] == '{' else 'yaml'}": text
    for number, text in enumerate(WRONG_SETTINGS)
}
LINES |= {
    f"finetune --config={name}": WRONG_SETTINGS[text] for name, text in FILES.items()
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Returns the outcomes of a command, which is tried once."""
    folder = tmp_path_factory.mktemp("wrong_values")
    (folder / "photo.jpg").touch()
    (folder / "run").mkdir()
    (folder / "run" / "model.keras").touch()
    (folder / "run" / "report.json").write_text("{}")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "KERAS_BACKEND": "tensorflow"}

    @functools.cache
    def of_command(command):
        lines = [
            line.removeprefix(command) for line in LINES if line.split()[0] == command
        ]
        done = subprocess.run(
            [sys.executable, command_outcomes.__file__, command],
            input=json.dumps(lines),
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return of_command


@pytest.mark.parametrize("line", LINES)
def test_a_wrong_line_is_an_error_that_names_what_to_do(line, outcomes):
    command = line.split()[0]
    said = outcomes(command)["lines"][line.removeprefix(command)]
    assert said.startswith("error: ") and said.count("\n") <= 2, said
    for part in LINES[line].split(" | "):
        assert part in said


# Values that cannot be counted or computed with.
NUMBERS = {"nan", "inf", "-inf", ".nan", ".inf", "-.inf", "1e39", "1e400", "-1e400"}
NUMBERS |= {"1" + 400 * "0", "1" + 5000 * "0", "[.nan, 1]", "[1, .inf]"}
TEXTS = {"few_shot_dataset", "real_labels", "subsets", "step_counts", "class"}
TEXTS |= {"positions", "tasks", "data_dir", "out_dir", "run_dir", "out", "output"}
TEXTS |= {"to", "name", "license", "push_to", "sort_into", "cache"}
TEXTS |= {"without", "relabel", "json"}
TEXTS |= {"image_column", "label_column", "split_column"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_bad_value_is_an_error_of_at_most_two_lines(command, outcomes):
    found = outcomes(command)["flags"]
    assert len(found) > 60
    for name, value, said in found:
        is_error = said.startswith("error: ") and said.count("\n") <= 2
        may_go_on = value not in NUMBERS or name in TEXTS
        is_fine = is_error or (may_go_on and said == command_outcomes.GOES_ON)
        assert is_fine, f"{name}={value}: {said}"
    assert ["dataset", "", command_outcomes.GOES_ON] not in found
