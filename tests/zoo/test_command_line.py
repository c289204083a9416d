import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from made_index import B16, R26
from peer_files import arrays_of, folder_of

import zoo
from zoo import store
from zoo.__main__ import main
from zoo.containers import safetensors

ROOT = pathlib.Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "goldens" / "token.npz"
PETS = f"{R26}--oxford_iiit_pet-steps_0k-lr_0.003-res_384"
# Cards whose file's size is not known: a golden can stand for them.
SMALL = "vit-l16/sam"
OTHER = "vit-l32/sam"


@pytest.fixture(autouse=True)
def released(bucket, goldens):
    """Goldens in place of two released files; returns the bucket."""
    for handle, golden in ((SMALL, "token"), (OTHER, "gap")):
        path = bucket.folder / zoo.get(handle).file
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(goldens / f"{golden}.npz", path)
    return bucket


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
    printed(capsys, "download", SMALL)
    lines = printed(capsys, "list", "vit-l*").out.splitlines()
    assert [line.split()[0] for line in lines if "yes" in line] == [SMALL]
    cached = {card["handle"]: card["cached"] for card in document(capsys, "list")}
    assert cached[SMALL].startswith(str(store.cache_dir()))
    assert cached[OTHER] is None
    assert len(document(capsys, "list", "augreg/*--oxford*res_384")) == 9
    assert f"augreg/{PETS}" in printed(capsys, "list", f"augreg/{PETS}").out


def test_info(capsys):
    output = printed(capsys, "info", "r50-vit-b16/imagenet21k").out
    facts = re.findall(r"^(.{12}) (\S.*?) *$", output, re.M)
    facts = {name.rstrip(): fact for name, fact in facts}
    expected = {
        "variant": "R50+ViT-B_16",
        "parameters": "115,277,971",
        "input range": "-1 to 1, RGB",
        "head": "all zeros",
        "pre_logits": "768",
        "notes": "The released head is all zeros: load it with a new head.",
        "trained on": "imagenet21k",
        "size": "439.9 MiB",
        "here": "no",
    }
    assert facts | expected == facts
    assert "resnet_stages (3, 4, 9)" in facts["architecture"]
    assert facts["paper"].endswith("https://arxiv.org/abs/2010.11929")
    assert "98.94% top1 after fine-tuning at 384" in output
    output = printed(capsys, "info", "vit-b16/gsam").out
    assert re.search(r"inferred +url, from the names", output)
    assert "resnet" not in output
    card = document(capsys, "info", "vit-b16/sam")
    assert card["architecture"]["hidden_size"] == 768
    assert card["accuracies"][0]["value"] == card["top1"] == 80.25
    assert card["citation"]["url"] == "https://arxiv.org/abs/2106.01548"
    assert card["inferred"] == {"representation_size": "from the file's size"}
    assert (card["input_range"], card["file"]) == ([-1, 1], "sam/ViT-B_16.npz")


def test_download_prints_paths_and_goes_on_after_a_failure(capsys, goldens, released):
    output = printed(capsys, "download", SMALL, OTHER)
    first, second = map(pathlib.Path, output.out.splitlines())
    assert first.read_bytes() == (goldens / "token.npz").read_bytes()
    assert second.read_bytes() == (goldens / "gap.npz").read_bytes()
    asked = list(released.requests)
    done = document(capsys, "download", SMALL)
    assert done == [{"handle": SMALL, "path": str(first)}]
    assert released.requests == asked
    output = printed(capsys, "download", "vit-b32/gsam", "nothing", SMALL, code=1)
    assert len(output.out.splitlines()) == 1
    missing, unknown = complaints(output.err)
    assert zoo.get("vit-b32/gsam").file.rpartition("/")[2] in missing
    assert "'nothing'" in unknown
    done = document(capsys, "download", "nothing", SMALL, code=1)
    assert [entry["handle"] for entry in done] == [SMALL]
    # It mends what is damaged.
    whole = first.read_bytes()
    first.write_bytes(whole[:-9] + b"?" + whole[-8:])
    [line] = complaints(printed(capsys, "download", SMALL).err)
    assert "sha256" in line and line.endswith("Downloading it again.")
    assert first.read_bytes() == whole


def test_files_of_augreg(capsys, goldens, released):
    path = released.folder / "augreg" / f"{PETS}.npz"
    shutil.copy(goldens / "token.npz", path)
    [done] = document(capsys, "download", f"augreg/{PETS}")
    assert done["handle"] == f"augreg/{PETS}"
    checks = document(capsys, "verify")
    assert {check["handle"] for check in checks} == {f"augreg/{PETS}", "index.csv"}
    card = document(capsys, "info", PETS)
    assert (card["variant"], card["classes"]) == ("R26+ViT-S_32", 37)


@pytest.mark.parametrize("length", [None, 1000])
def test_verify(capsys, length):
    assert document(capsys, "verify") == []
    path, _ = printed(capsys, "download", SMALL, OTHER).out.splitlines()
    checks = document(capsys, "verify")
    assert {check["handle"] for check in checks} == {SMALL, OTHER}
    assert all(check["ok"] and check["error"] is None for check in checks)
    assert printed(capsys, "verify").out.count(" ok ") == 2
    content = bytearray(pathlib.Path(path).read_bytes())
    content[1000] ^= 1
    pathlib.Path(path).write_bytes(content[:length])
    output = printed(capsys, "verify", code=1)
    assert (output.out.count(" bad "), output.out.count(" ok ")) == (1, 1)
    [line] = complaints(output.err)
    assert pathlib.Path(path).name in line
    [check] = document(capsys, "verify", SMALL, code=1)
    assert not check["ok"] and "sha256" in check["error"]
    assert document(capsys, "verify", OTHER)[0]["ok"]


@pytest.mark.parametrize(
    ("source", "target", "naming"),
    [
        (SMALL, "copy.npz", "released"),
        (zoo.get(SMALL).url, "model.safetensors", "released"),
        (str(GOLDEN), "new/folder/model.safetensors", "timm"),
    ],
)
def test_convert(capsys, tmp_path, source, target, naming):
    target = tmp_path / target
    line = ["convert", source, str(target), f"--naming={naming}"]
    assert printed(capsys, *line).out.startswith(f"{target}: 56 arrays, 0.")
    expected = {"source": str(zoo.locate(source)), "naming": naming}
    expected |= {"size": target.stat().st_size}
    written = document(capsys, *line)
    assert written | expected == written
    if naming == "timm":
        assert b"blocks.0.norm1.weight" in target.read_bytes()
        assert target.with_name("config.json").is_file()
    original, converted = zoo.read(GOLDEN).arrays, zoo.read(target).arrays
    assert original.keys() == converted.keys()
    assert all((array == converted[name]).all() for name, array in original.items())


def test_a_warning_of_convert_is_one_line_and_heads_are_a_flag(capsys, tmp_path):
    shutil.copytree(folder_of("deit_timm"), tmp_path / "deit")
    arrays = {f"module.{key}": array for key, array in arrays_of("deit_timm").items()}
    safetensors.write(tmp_path / "deit" / "model.safetensors", arrays)
    line = ("convert", str(tmp_path / "deit"), str(tmp_path / "a.safetensors"))
    [said] = printed(capsys, *line).err.splitlines()
    assert "zoo: warning: " in said and "'module.' in its keys" in said
    (tmp_path / "deit" / "config.json").unlink()
    assert "pass --num-heads" in printed(capsys, *line, code=1).err
    printed(capsys, *line, "--num-heads=4")
    assert zoo.read(tmp_path / "a.safetensors").num_heads == 4


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("info vit-b16/imagenet22k", "'vit-b16/imagenet22k'|vit-b16/imagenet21k"),
        (f"info {B16}x", f"{B16}x"),
        ("list resnet*", "'resnet*'|keras-vit zoo list"),
        (f"verify {SMALL}", f"{SMALL} is not in |keras-vit zoo download {SMALL}"),
        ("convert missing.npz new.npz", "There is no file missing.npz"),
        ("convert vit-b16/imagenet22k new.npz", "Did you mean vit-b16/imagenet21k"),
        (f"convert {SMALL} new.txt", "new.txt"),
        ("convert README.md new.npz", "README.md"),
    ],
)
def test_a_complaint_is_one_line(capsys, tmp_path, monkeypatch, line, words):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("README.md").write_text("no checkpoint")
    output = printed(capsys, *line.split(), code=1)
    assert output.out == ""
    [complaint] = complaints(output.err)
    assert all(word in complaint for word in words.split("|")), complaint
    assert [path.name for path in tmp_path.glob("*.*")] == ["README.md"]


def test_where(capsys, monkeypatch):
    printed(capsys, "download", SMALL)
    found, cache = document(capsys, "where"), str(store.cache_dir())
    assert (found["cache"], found["files"]) == (cache, 1)
    assert found["size"] == store.cached()[0].size
    assert found["environment"]["KERAS_VIT_CACHE"] == cache
    assert "KERAS_VIT_OFFLINE" not in found["environment"]
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    output = printed(capsys, "where").out
    assert re.search(r"KERAS_VIT_OFFLINE +1", output)
    assert cache in output


def test_a_user_interrupts(monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(zoo, "get", interrupt)
    assert printed(capsys, "info", SMALL, code=130) == ("", "")


def test_help_opens_with_an_example(capsys):
    for name in ("", "list", "info", "download", "verify", "convert", "where"):
        with pytest.raises(SystemExit, match="0"):
            main([*name.split(), "--help"])
        first = capsys.readouterr().out.splitlines()[0]
        assert first.startswith(f"$ keras-vit zoo {name}")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "usage: keras-vit zoo"),
        ("lst", "did you mean list?"),
        ("info", "usage: keras-vit zoo"),
        ("download", "usage: keras-vit zoo"),
        ("convert a b --naming=tim", "did you mean timm?"),
        ("list --yaml", "usage: keras-vit zoo"),
    ],
)
def test_wrong_lines_end_with_2_and_show_the_usage(line, said, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(line.split())
    out, err = capsys.readouterr()
    assert out == "" and "usage: keras-vit zoo" in err and said in err


def test_a_reader_that_has_enough():
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "zoo", "list", "--json"]
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, cwd=ROOT) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
