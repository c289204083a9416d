"""The command `keras-vit`, files of a user that have our names, missing packages."""

import functools
import io
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from imported import imported

import keras_vit_start
import zoo
from train.common import command_line, packages
from train.common.errors import RunError
from train.run import recipe_flags

ROOT = pathlib.Path(__file__).parent.parent
KERAS_VIT = pathlib.Path(sys.executable).with_name("keras-vit")
OURS = ("keras_vit.", "train.", "zoo.")
# Every installation has the first ones; a data set, a recipe, a format or a backend
# asks for others, some are used where they are installed, and what fits probes asks for
# scikit-learn, with which threadpoolctl comes.
ASKED_FOR_ELSEWHERE = {
    *("absl", "einops", "filelock", "h5py", "keras", "numpy", "requests", "rich"),
    *("tqdm", "urllib3", "keras_vit_start", "tensorflow_datasets", "jax", "torch"),
    *("onnx", "onnxruntime", "ai_edge_litert", "ai_edge_quantizer", "flatbuffers"),
    *("huggingface_hub", "anyascii", "pillow_heif", "yaml", "threadpoolctl"),
    *("ray", "apache_beam", "pyarrow", "fsspec"),
}
# Modules that a command imports need these in functions that it does not call.
NOT_CALLED = {
    "masked_patches": {"sklearn"},
    "few_shot": {"sklearn"},
    **dict.fromkeys(("compare", "publish"), {"sklearn", "scipy", "matplotlib"}),
    "explain": {"sklearn", "scipy"},
    "export": {"sklearn", "matplotlib"},
    "predict": {"tensorflow", "scipy", "jinja2"},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's folder, where our names are taken by files that must not run."""
    for name in ("train.py", "zoo.py", "keras_vit.py"):
        (tmp_path / name).write_text("open('ran', 'w').close()\nraise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    yield tmp_path
    assert not (tmp_path / "ran").exists()


def run(*command, **environment):
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True
    )


def python(*words, **environment):
    """Runs Python, which finds our packages."""
    return run(sys.executable, *words, **{"PYTHONPATH": str(ROOT)} | environment)


@pytest.mark.parametrize(
    "line",
    ["-m train.finetune --help", "-m train.predict --helpfull", "keras_vit_start.py"],
)
def test_help_ends_well_even_where_nobody_reads_it(line):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, *line.split()]
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141 if "train" in line else 1, b"")


def test_an_interrupt_before_the_run_is_one_line(tmp_path):
    """It comes while TensorFlow is imported."""
    (tmp_path / "tensorflow.py").write_text("raise KeyboardInterrupt")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = python("-m", "train.finetune", "--dataset=digits", PYTHONPATH=path)
    assert done.returncode == 130
    assert done.stderr == "error: Interrupted; what the run directory holds is whole.\n"


def test_the_map_of_commands_says_what_each_does(monkeypatch):
    files = [ROOT / "train" / "finetune.py", ROOT / "train" / "pretrain.py"]
    files += sorted((ROOT / "train").glob("*/__main__.py"))
    called = re.compile(r"command_line\.run\(\s*(main|functools\.partial\(main)")
    assert all(called.search(file.read_text()) for file in files)
    found = [file.parent.name if "__main" in file.name else file.stem for file in files]
    assert [*found, "zoo"] == list(keras_vit_start.COMMANDS)
    _, *groups, examples, _ = keras_vit_start.usage().split("\n\n")
    rows = [row for group in groups for row in group.splitlines()[1:]]
    assert len(rows) == len(keras_vit_start.COMMANDS)
    for row in rows:
        assert re.fullmatch(r"  \w+  +[A-Z][^.]+", row) and len(row) <= 88
    # A new user's order.
    assert rows[0].startswith("  check ") and rows[-1].startswith("  zoo ")
    shown = re.findall(r"(?m)^  keras-vit (\w+) ", examples)
    assert len(shown) >= 3 and {*shown} <= keras_vit_start.COMMANDS.keys()
    # A command that is not in the map is listed at its end.
    place = keras_vit_start.COMMANDS["finetune"]
    monkeypatch.setitem(keras_vit_start.COMMANDS, "a_new_one", place)
    *_, last, _, _ = keras_vit_start.usage().split("\n\n")
    assert [row.split()[0] for row in last.splitlines()[1:]] == ["zoo", "a_new_one"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_colours_are_for_terminals_alone(monkeypatch):
    styled = functools.partial(keras_vit_start.styled, "text", "error")
    for no_colour, term in (("0", "xterm"), ("", "dumb")):
        monkeypatch.setenv("NO_COLOR", no_colour)
        monkeypatch.setenv("TERM", term)
        assert styled(Terminal()) == "text"
    # An empty NO_COLOR is as none.
    monkeypatch.setenv("TERM", "xterm")
    assert styled(Terminal()) == "\x1b[1;31mtext\x1b[0m"
    assert styled(io.StringIO()) == styled(None) == "text"
    monkeypatch.delenv("TERM")  # as on Windows
    assert styled(Terminal()) != "text"
    monkeypatch.setattr("rich.console.Console.color_system", "windows")
    assert styled(Terminal()) == "text"
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert styled(Terminal()) == "text"


def test_the_next_step_is_typed_like_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "orig_argv", ["keras-vit", "finetune"])
    monkeypatch.setitem(keras_vit_start.COMMANDS, "export", "export.py")
    steps = [("export", pathlib.Path("my run"), "--out=x"), ("evaluate", "my run")]
    command_line.say_next(("not_installed", "my run"), *steps)
    line = "next: keras-vit export 'my run' --out=x"
    assert capsys.readouterr() == ("", f"{line}   (or evaluate)\n")
    command_line.say_next(steps[0], ("not_installed", "my run"))
    assert capsys.readouterr() == ("", f"{line}\n")
    command_line.say_next(("not_installed",))
    command_line.say_next()
    assert capsys.readouterr() == ("", "")


@pytest.mark.skipif(not KERAS_VIT.exists(), reason="keras_vit is not installed here")
def test_command_never_runs_files_of_the_folder(folder):
    handle = zoo.list_models()[0]
    done = run(KERAS_VIT, "zoo", "info", handle, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert f'"handle": "{handle}"' in done.stdout
    done = run(KERAS_VIT, "few-shot", "--help")
    assert "  keras-vit few_shot runs/digits --dataset=digits" in done.stdout
    assert "--shots: Training images per class." in done.stdout
    done = run(KERAS_VIT, "evaluate")
    assert "keras-vit evaluate MODEL [FOLDER]" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not KERAS_VIT.exists(), reason="keras_vit is not installed here")
def test_a_run_never_runs_files_of_the_folder(folder):
    flags = ["--dataset=digits", "--smoke", "--run_dir=my run"]
    done = run(KERAS_VIT, "finetune", *flags)
    assert done.returncode == 0, done.stderr
    page = (folder / "my run" / "report.md").read_text()
    assert "keras-vit finetune --dataset=digits --smoke '--run_dir=my run'" in page
    # No word of TensorFlow's.
    *others, last = done.stderr.splitlines()
    assert re.match(r"next: keras-vit \w+ 'my run' ", last)
    assert all(re.match("(training|testing|features): ", line) for line in others)


def test_the_help_of_a_module_has_its_name():
    shown = python("-m", "train.publish", "--help").stdout
    assert "python -m train.publish runs/digits --to=registry" in shown
    assert "python -m zoo list shows" in shown and "keras-vit" not in shown


def test_command_alone_lists_all_and_an_unknown_one_is_asked_for(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["keras-vit", "--version"])
    assert keras_vit_start.main() == 0
    assert capsys.readouterr().out.startswith("keras_vit 0")
    for words in ([], ["--help"], ["help"]):
        monkeypatch.setattr(sys, "argv", ["keras-vit", *words])
        assert keras_vit_start.main() == 0
        listed = re.findall(r"(?m)^  (\w+)  ", capsys.readouterr().out)
        assert sorted(listed) == sorted(keras_vit_start.COMMANDS)
    for word, answer in (
        ("fine-tune", "'fine-tune': did you mean finetune?"),
        ("\x1b[2J", r"'\x1b[2J': keras-vit alone lists all."),
    ):
        monkeypatch.setattr(sys, "argv", ["keras-vit", word])
        assert keras_vit_start.main() == 2
        assert capsys.readouterr().err == f"keras-vit: no command {answer}\n"


def test_an_interrupt_during_imports_is_one_line(monkeypatch, capsys):
    def importing(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(keras_vit_start, "run", importing)
    monkeypatch.setattr(sys, "argv", ["keras-vit", "finetune"])
    assert keras_vit_start.main() == 130
    assert capsys.readouterr().err == "error: Interrupted.\n"


@pytest.mark.parametrize("importing", ["keras_vit.layers", "train.common.errors"])
def test_a_file_that_hides_ours_is_named(importing, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "zoo.py"
    file.write_text("raise SystemExit(3)\n")
    (tmp_path / "mine.py").write_text(f"import {importing}\n")
    done = python("mine.py")
    assert done.returncode == 1
    told = f"ImportError: {file} hides the package 'zoo' that keras_vit needs: rename"
    assert told in done.stderr


def test_a_folder_without_python_hides_nothing(tmp_path, monkeypatch):
    """An editable installation finds ours after the path."""
    (tmp_path / "zoo_of_photos").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(keras_vit_start._OurPackages, "names", set())
    keras_vit_start.need_ours("zoo_of_photos")
    assert keras_vit_start._OurPackages.names == {"zoo_of_photos"}
    assert keras_vit_start._OurPackages in sys.meta_path


def test_new_processes_never_run_files_of_the_folder(folder):
    keras_vit_start.need_ours(*keras_vit_start.PACKAGES)
    done = run(*keras_vit_start.python("zoo", "where", "--json"))
    assert (done.returncode, done.stderr) == (0, "")
    assert '"cache"' in done.stdout
    # The comparison of exports runs none of these files either.
    pytest.importorskip("onnxruntime")
    program = pytest.importorskip("train.export.program")
    parity = pytest.importorskip("train.export.parity")
    program.write_images(folder / "images", [np.zeros((1, 8, 8, 3), "float32")])
    with pytest.raises(RunError, match=r"none\.onnx"):
        parity.run("model", folder / "none.onnx", folder / "images", threads=1)


def test_import_without_a_backend_says_what_to_install(tmp_path):
    for backend, missing, remedy in (
        ("tensorflow", keras_vit_start.BACKENDS, "; or pip install jax or torch, and"),
        ("torch", ["torch"], ", or set KERAS_BACKEND=tensorflow"),
    ):
        code = f"import sys; sys.modules |= dict.fromkeys({missing}); import keras_vit"
        done = python("-c", code, KERAS_BACKEND=backend, KERAS_HOME=str(tmp_path))
        assert done.returncode == 1
        message = done.stderr.splitlines()[-1]
        assert f"Keras computes with {backend} here, which is not installed" in message
        assert f"pip install {backend}{remedy}" in message


def test_missing_packages_are_named_before_anything_is_made(tmp_path, monkeypatch):
    code = "import sys; sys.modules['sklearn'] = None; "
    code += "import keras_vit_start; keras_vit_start.main()"
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    done = python("-c", code, "finetune", "--dataset=digits")
    assert done.returncode == 1
    assert done.stderr == (
        "error: keras-vit finetune needs scikit-learn, which is not installed: pip "
        "install scikit-learn. In a clone of keras_vit, pip install '.[train]' takes "
        "all of its kind.\n"
    )
    assert os.listdir(tmp_path) == []
    for name in ("PIL", "jinja2"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SystemExit, match="needs pillow and jinja2, which are not"):
        command_line.need_packages("explain", ("PIL", "tensorflow", "jinja2"))
    with pytest.raises(RunError, match=r"pip install '.\[export\]'"):
        packages.need("Pictures", ["PIL"], extra="export")


def file_of(module):
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@functools.cache
def uses(module):
    """The modules of ours that a module imports, and the packages of others."""
    names = {*imported(file_of(module))}
    ours = {name for name in names if name.startswith(OURS) and file_of(name).exists()}
    packages = {name.partition(".")[0] for name in names}
    return ours, packages - {*keras_vit_start.PACKAGES, *sys.stdlib_module_names}


@pytest.mark.parametrize("command", [*keras_vit_start.COMMANDS][:-1])
def test_every_package_that_a_command_imports_is_asked_for(command):
    # Before it is known which, nothing heavy is imported.
    assert uses("keras_vit_start") == (set(), {"keras", "rich"})
    modules, found = [f"train.{command}"], set()
    if command not in ("finetune", "pretrain"):
        modules.append(f"train.{command}.__main__")
    text = file_of(modules[-1]).read_text()
    # A command has a list of its own, or hands on that of a run.
    names = r"(?m)^(?:PACKAGES|    packages(?:, task)?) = (\(.*\)|recipe_flags\.\w+)"
    [said] = re.findall(names, text)
    asked = eval(said, {"recipe_flags": recipe_flags})
    assert re.search(r"(?i),\s+packages(\)|,\s+task,\s)", text)
    for module in modules:
        ours, packages = uses(module)
        modules += ours.difference(modules)
        found |= packages
    assert found - ASKED_FOR_ELSEWHERE - NOT_CALLED.get(command, set()) <= {*asked}
