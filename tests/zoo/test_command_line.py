import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from made_index import B16, R26, bucket  # noqa: F401

import zoo
from zoo import __main__ as zoo_command
from zoo import store
from zoo.__main__ import main
from zoo.files import safetensors

ROOT = pathlib.Path(__file__).parents[2]
PETS = f"{R26}--oxford_iiit_pet-steps_0k-lr_0.003-res_384"
# Cards whose file's size is not known: a golden can stand for them.
SMALL = "vit-l16/sam"
OTHER = "vit-l32/sam"


@pytest.fixture(autouse=True)
def released(bucket, goldens):  # noqa: F811
    """Goldens in place of two released files; returns the bucket."""
    for handle, golden in ((SMALL, "token"), (OTHER, "gap")):
        path = bucket.folder / zoo.get(handle).file
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(goldens / f"{golden}.npz", path)
    return bucket


def run(*arguments, **options):
    """Runs the command as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "zoo", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        **options,
    )


def printed(capsys, *arguments, code=0):
    """Runs the command in this process; returns what it printed, both streams."""
    assert main(list(arguments)) == code
    return capsys.readouterr()


def document(capsys, *arguments, code=0):
    """Runs the command with --json; returns what it printed."""
    return json.loads(printed(capsys, *arguments, "--json", code=code).out)


def complaints(errors):
    """Returns the lines of the error stream that are not of a progress bar."""
    lines = errors.replace("\r", "\n").split("\n")
    return [line for line in lines if re.match("(python -m|keras-vit) zoo: ", line)]


def test_list(capsys):
    lines = printed(capsys, "list").out.splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines if "/" in line}
    assert list(rows) == zoo.list_models()
    assert rows["vit-b16/sam"] == ["330", "MiB", "224", "1000", "80.25"]
    # Not listed: four bytes a parameter.
    assert rows["vit-l16/sam"] == ["~1,161", "MiB", "224", "1000"]
    # Fits a terminal, so that handles stay whole.
    assert max(len(line.rstrip()) for line in lines) <= 80


def test_list_marks_what_is_cached(capsys):
    assert "yes" not in printed(capsys, "list").out
    main(["download", SMALL])
    lines = printed(capsys, "list", "vit-l*").out.splitlines()
    assert [line.split()[0] for line in lines if "yes" in line] == [SMALL]
    cached = {card["handle"]: card["cached"] for card in document(capsys, "list")}
    assert cached[SMALL].startswith(str(store.cache_dir()))
    assert cached[OTHER] is None


def test_list_of_a_pattern(capsys):
    cards = document(capsys, "list", "vit-b16/*augreg*")
    assert [card["handle"] for card in cards] == zoo.list_models("vit-b16/*augreg*")
    cards = document(capsys, "list", "augreg/*--oxford*res_384")
    assert len(cards) == 9
    assert f"augreg/{PETS}" in printed(capsys, "list", f"augreg/{PETS}").out
    output = printed(capsys, "list", "resnet*", code=1)
    assert output.out == ""
    assert complaints(output.err) == [
        "keras-vit zoo: No handle matches 'resnet*': keras-vit zoo list shows every "
        "one."
    ]


def test_info(capsys):
    output = printed(capsys, "info", "r50-vit-b16/imagenet21k").out
    facts = re.findall(r"^(.{12}) (\S.*?) *$", output, re.M)
    facts = {name.rstrip(): fact for name, fact in facts}
    assert facts["variant"] == "R50+ViT-B_16"
    assert "resnet_stages (3, 4, 9)" in facts["architecture"]
    assert facts["parameters"] == "115,277,971"
    assert facts["input range"] == "-1 to 1, RGB"
    assert facts["head"] == "all zeros"
    assert facts["pre_logits"] == "768"
    assert facts["trained on"] == "imagenet21k"
    assert facts["size"] == "439.9 MiB"
    assert facts["here"] == "no"
    assert facts["paper"].endswith("https://arxiv.org/abs/2010.11929")
    assert "98.94% top1 after fine-tuning at 384" in output
    output = printed(capsys, "info", "vit-b16/gsam").out
    assert re.search(r"inferred +url, from the names", output)
    assert "resnet" not in output
    assert len(complaints(printed(capsys, "info", f"{B16}x", code=1).err)) == 1


def test_info_has_every_field_as_json(capsys):
    card = document(capsys, "info", "vit-b16/sam")
    assert card["architecture"]["hidden_size"] == 768
    assert card["accuracies"][0]["value"] == 80.25
    assert card["citation"]["url"] == "https://arxiv.org/abs/2106.01548"
    assert card["inferred"] == {"representation_size": "from the file's size"}
    assert card["input_range"] == [-1, 1]
    assert card["file"] == "sam/ViT-B_16.npz"
    assert card["top1"] == 80.25
    assert card["training_data"] == ["imagenet2012"]
    card = document(capsys, "info", PETS)
    assert (card["variant"], card["classes"]) == ("R26+ViT-S_32", 37)


def test_an_unknown_handle(capsys):
    for command in ("info", "download", "verify"):
        output = printed(capsys, command, "vit-b16/imagenet22k", code=1)
        assert output.out == ""
        [line] = output.err.splitlines()
        assert line.startswith("keras-vit zoo: No model is called 'vit-b16/im")
        assert "vit-b16/imagenet21k" in line


@pytest.mark.parametrize(
    ("words", "near"),
    [(["lst"], "list"), (["convert", "a", "b", "--naming=tim"], "timm")],
)
def test_a_misspelt_word_asks_for_the_one_that_is_meant(words, near, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert capsys.readouterr().err.endswith(f": did you mean {near}?\n")


def test_download_prints_paths(capsys, goldens, released):
    output = printed(capsys, "download", SMALL, OTHER)
    first, second = map(pathlib.Path, output.out.splitlines())
    assert first.read_bytes() == (goldens / "token.npz").read_bytes()
    assert second.read_bytes() == (goldens / "gap.npz").read_bytes()
    asked = list(released.requests)
    assert document(capsys, "download", SMALL) == [
        {"handle": SMALL, "path": str(first)}
    ]
    assert released.requests == asked


def test_download_goes_on_after_a_failure(capsys, released):
    missing = zoo.get("vit-b32/gsam")
    output = printed(capsys, "download", "vit-b32/gsam", "nothing", SMALL, code=1)
    assert len(output.out.splitlines()) == 1
    first, second = complaints(output.err)
    assert missing.file.rpartition("/")[2] in first
    assert "'nothing'" in second
    done = document(capsys, "download", "nothing", SMALL, code=1)
    assert [entry["handle"] for entry in done] == [SMALL]


def test_download_of_an_augreg_file(capsys, goldens, released):
    path = released.folder / "augreg" / f"{PETS}.npz"
    shutil.copy(goldens / "token.npz", path)
    [done] = document(capsys, "download", f"augreg/{PETS}")
    assert done["handle"] == f"augreg/{PETS}"
    checks = document(capsys, "verify")
    assert {check["handle"] for check in checks} == {f"augreg/{PETS}", "index.csv"}


def test_verify(capsys):
    assert document(capsys, "verify") == []
    main(["download", SMALL, OTHER])
    capsys.readouterr()
    checks = document(capsys, "verify")
    assert {check["handle"] for check in checks} == {SMALL, OTHER}
    assert all(check["ok"] and check["error"] is None for check in checks)
    assert printed(capsys, "verify").out.count(" ok ") == 2

    path = store.cached()[0].path
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    bad, good = checks if checks[0]["path"] == str(path) else reversed(checks)
    output = printed(capsys, "verify", code=1)
    assert (output.out.count(" bad "), output.out.count(" ok ")) == (1, 1)
    [line] = complaints(output.err)
    assert path.name in line
    [check] = document(capsys, "verify", bad["handle"], code=1)
    assert not check["ok"]
    assert "sha256" in check["error"]
    assert document(capsys, "verify", good["handle"])[0]["ok"]


def test_verify_of_what_is_not_there(capsys):
    output = printed(capsys, "verify", SMALL, code=1)
    assert complaints(output.err) == [
        f"keras-vit zoo: {SMALL} is not in the cache: keras-vit zoo download {SMALL}"
    ]


@pytest.mark.parametrize("source", ["path", "handle", "url"])
def test_convert(capsys, goldens, tmp_path, source):
    path = str(goldens / "token.npz")
    source = {"path": path, "handle": SMALL, "url": zoo.get(SMALL).url}[source]
    copy = str(tmp_path / "copy.npz")
    output = printed(capsys, "convert", source, copy).out
    assert output.startswith(f"{copy}: 56 arrays, 0.")
    original, written = zoo.read(path), zoo.read(copy)
    assert original.shapes == written.shapes
    for name, array in original.arrays.items():
        assert (array == written.arrays[name]).all()


def test_convert_writes_what_the_extension_says(capsys, goldens, tmp_path):
    path = str(goldens / "token.npz")
    safe = str(tmp_path / "model.safetensors")
    written = document(capsys, "convert", path, safe)
    assert written["source"] == path
    assert written["size"] == os.path.getsize(safe)
    back = str(tmp_path / "back.npz")
    printed(capsys, "convert", safe, back)
    assert zoo.read(back).shapes == zoo.read(path).shapes
    (tmp_path / "timm").mkdir()
    timm = str(tmp_path / "timm" / "model.safetensors")
    assert document(capsys, "convert", path, timm, "--naming=timm")["naming"] == "timm"
    with open(timm, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    assert "blocks.0.norm1.weight" in header
    back = str(tmp_path / "from_timm.npz")
    printed(capsys, "convert", str(tmp_path / "timm"), back)
    original = zoo.read(path)
    for name, array in zoo.read(back).arrays.items():
        assert (array == original.arrays[name]).all()


def test_download_mends_what_is_damaged(capsys, goldens):
    path = pathlib.Path(printed(capsys, "download", SMALL).out.strip())
    whole = path.read_bytes()
    path.write_bytes(whole[:-9] + b"?" + whole[-8:])
    output = printed(capsys, "download", SMALL)
    [line] = complaints(output.err)
    assert "sha256" in line and line.endswith("Downloading it again.")
    assert path.read_bytes() == whole


def test_a_warning_of_convert_is_one_line(capsys, goldens, tmp_path):
    arrays = zoo.read(goldens / "peers" / "vit_msn")
    zoo.write(tmp_path / "model.safetensors", arrays, naming="timm")
    file = safetensors.Safetensors(tmp_path / "model.safetensors")
    wrapped = {f"module.{key}": np.asarray(file.check(key)) for key in file.keys}
    del file
    safetensors.write(tmp_path / "model.safetensors", wrapped)
    target = str(tmp_path / "a.safetensors")
    found = printed(capsys, "convert", str(tmp_path), target)
    [line] = found.err.splitlines()
    assert "zoo: warning: " in line
    assert "'module.' in its keys" in line


def test_convert_makes_the_folder(capsys, tmp_path):
    destination = tmp_path / "new" / "folder" / "model.safetensors"
    printed(capsys, "convert", SMALL, str(destination), "--naming=timm")
    assert (destination.parent / "config.json").is_file()


@pytest.mark.parametrize(
    ("source", "destination", "message"),
    [
        ("missing.npz", "new.npz", "There is no file missing.npz"),
        ("vit-b16/imagenet22k", "new.npz", "Did you mean vit-b16/imagenet21k"),
        (SMALL, "new.txt", "new.txt"),
        ("README.md", "new.npz", "README.md"),
    ],
)
def test_convert_explains(capsys, tmp_path, monkeypatch, source, destination, message):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("README.md").write_text("no checkpoint")
    output = printed(capsys, "convert", source, destination, code=1)
    assert output.out == ""
    [line] = complaints(output.err)
    assert message in line
    assert not pathlib.Path(destination).exists()


def test_where(capsys, monkeypatch):
    main(["download", SMALL])
    capsys.readouterr()
    found = document(capsys, "where")
    assert found["cache"] == str(store.cache_dir())
    assert found["files"] == 1
    assert found["size"] == store.cached()[0].size
    assert found["environment"]["KERAS_VIT_CACHE"] == found["cache"]
    assert "KERAS_VIT_OFFLINE" not in found["environment"]
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    output = printed(capsys, "where").out
    assert re.search(r"KERAS_VIT_OFFLINE +1", output)
    assert found["cache"] in output


def test_a_user_interrupts(monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(zoo, "get", interrupt)
    assert printed(capsys, "info", SMALL, code=130) == ("", "")


def test_complaints_are_one_line(capsys):
    zoo_command._complain("two\n  lines")
    assert capsys.readouterr().err == "keras-vit zoo: two lines\n"


@pytest.mark.parametrize(
    "name", ["", "list", "info", "download", "verify", "convert", "where"]
)
def test_help_opens_with_an_example(name, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*name.split(), "--help"])
    assert stop.value.code == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"$ keras-vit zoo {name}")


@pytest.mark.parametrize(
    "arguments",
    [[], ["lst"], ["info"], ["download"], ["convert", "one"], ["list", "--yaml"]],
)
def test_usage(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "usage: keras-vit zoo" in output.err


def test_as_a_user():
    done = run("list", "vit-ti16/*", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(json.loads(done.stdout)) == 2


def test_verify_of_a_file_cut_short(capsys):
    os.truncate(printed(capsys, "download", SMALL).out.strip(), 1000)
    output = printed(capsys, "verify", code=1)
    assert len(complaints(output.err)) == 1


def test_a_reader_that_has_enough():
    with subprocess.Popen(
        [sys.executable, "-m", "zoo", "list", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        process.stdout.close()
        errors = process.stderr.read()
    assert process.returncode == 1
    assert b"Traceback" not in errors
    assert b"Exception" not in errors
    assert complaints(errors.decode()) == []
