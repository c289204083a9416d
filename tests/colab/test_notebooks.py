"""The notebooks are as their pages say, and run from top to bottom."""

import json
import os
import pathlib
import re
import shutil
import signal
import sys

import fine_tunings
import nbformat
import pytest
import small_variants
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from released_files import Released, path_of
from serving import serving_files, use_mirror

from colab import build
from zoo.catalog import index_file

NAMES = (
    *("choose_checkpoint", "classify", "finetune", "own_photos", "phone", "pretrain"),
)


def read(name):
    return nbformat.read(build.NOTEBOOKS / f"{name}.ipynb", as_version=4)


def test_every_page_has_its_notebook_and_every_notebook_its_page():
    pages = {path.stem for path in build.PAGES.glob("*.md")}
    notebooks = {path.stem for path in build.NOTEBOOKS.glob("*.ipynb")}
    assert pages == notebooks == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_notebook_is_made_from_its_page_and_begins_as_all_do(name):
    committed = (build.NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8")
    made = build.notebook(build.PAGES / f"{name}.md")
    assert committed == made, "run: python colab/build.py"
    cells = read(name).cells
    title = cells[0].source
    assert title.startswith("# ")
    assert "\n**Runtime:** " in title and "\n**Result:** " in title
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    # They lead into the clone that the notebook lies in.
    links = re.findall(r"\]\((?!https://|#)([^)#]+)", text)
    assert links and all((build.NOTEBOOKS / link).is_file() for link in links)

    install, settings, *_ = codes = [c for c in cells if c.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in codes)
    assert install.source.replace("[export]", "[train]") == install_of("classify")
    assert f"[{'export' if name == 'phone' else 'train'}]" in install.source
    fields, _, small = settings.source.partition("\n\n")
    title, *fields = fields.splitlines()
    assert title == "# @title Settings"
    assert all(re.match(r"[A-Z_]+ = .+  # @param ", field) for field in fields)
    assert fields[-1] == 'SMALL = False  # @param {type:"boolean"}'
    assert small.rpartition("if SMALL:")[1]


def install_of(name):
    """Returns the code of the first cell of code."""
    return next(cell.source for cell in read(name).cells if cell.cell_type == "code")


def installed(source, capsys):
    """Runs an install cell; returns what `%pip` was asked for."""
    from IPython.core.interactiveshell import InteractiveShell

    asked = []
    shell = InteractiveShell()
    shell.register_magic_function(asked.append, magic_name="pip")
    result = shell.run_cell(source)
    capsys.readouterr()
    if result.error_in_exec:
        raise result.error_in_exec
    return asked


def test_install_takes_the_clone_or_an_address(tmp_path, monkeypatch, capsys):
    source = install_of("phone")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert installed(source, capsys) == []
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(FileNotFoundError, match=f"no clone of it in {tmp_path}: set"):
        installed(source, capsys)
    for folder in (tmp_path, tmp_path / "keras_vit", tmp_path.parent):
        folder.mkdir(exist_ok=True)
        module = folder / "keras_vit_start.py"
        module.touch()
        assert installed(source, capsys) == [f'install --quiet "{folder}[export]"']
        module.unlink()
    empty = 'REPOSITORY = ""  # @param {type:"string"}'
    for repository in ("https://example.org/a.git", "git" + "+ssh://host/a"):
        asked = installed(source.replace(empty, f'REPOSITORY = "{repository}"'), capsys)
        address = "git+" + repository.removeprefix("git+")
        assert asked == [f'install --quiet "keras_vit[export] @ {address}"']


def test_pages_that_cannot_be_notebooks_are_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```console\n$ a\n$ b\n```\n")
    with pytest.raises(build.PageError, match="is not one command"):
        build.notebook(page)


@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    """The address of a server of random files in place of the released ones."""
    folder = tmp_path_factory.mktemp("released")
    path = folder / path_of(index_file.INDEX_URL).lstrip("/")
    path.parent.mkdir(parents=True)
    fine_tunings.write_index(path)
    with serving_files(folder, Released) as server:
        yield server.url


@pytest.fixture
def executed(mirror, forks, tmp_path, monkeypatch):
    """A function of a notebook's name that runs it small, and returns it."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    search = [forks.python.parent, os.path.dirname(sys.executable), os.environ["PATH"]]
    for variable, value in {
        "FORKED_PYTHON": forks.python,
        "PATH": os.pathsep.join(map(str, search)),
        "PYTHONPATH": build.ROOT,
        # TensorBoard notes its servers here.
        "TMPDIR": scratch,
        "IPYTHONDIR": tmp_path / "ipython",
        "JUPYTER_RUNTIME_DIR": tmp_path / "jupyter",
        **small_variants.ENVIRONMENT,
    }.items():
        monkeypatch.setenv(variable, str(value))
    use_mirror(monkeypatch, mirror, tmp_path / "cache")
    # The notebook sets it, where it matters.
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr(sys, "executable", str(forks.python))

    def execute(name):
        notebook = read(name)
        for cell in notebook.cells:
            cell.source = cell.source.replace("\nSMALL = False  ", "\nSMALL = True  ")
        NotebookClient(
            notebook,
            kernel_manager_class=_ThisPython,
            timeout=300,
            resources={"metadata": {"path": str(work)}},
        ).execute()
        return notebook

    yield execute
    for info in scratch.glob(".tensorboard-info/*.info"):
        os.kill(json.loads(info.read_text())["pid"], signal.SIGTERM)


class _ThisPython(AsyncKernelManager):
    """Starts the Python of the tests, whichever kernels the machine has."""

    @property
    def kernel_spec(self):
        start = ["-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=[sys.executable, *start], language="python")


# Each notebook shows so many pictures, leaves a file, and prints what has patterns.
EXPECTED = {
    "classify": (
        7,
        "explanation/report.html",
        [
            r"china\.png\n +[\d.]+%  \w[\s\S]*flower\.png\n +[\d.]+%  \w",
            r"<iframe srcdoc=[\s\S]*flower\.png",
        ],
    ),
    "finetune": (
        6,  # the mistakes, and the figures of a run
        "runs/finetuned/model.keras",
        [
            r"test accuracy [\d.]+% \([\d.% to]+\) on all 360 test images",
            "tensorboard-frame",
            r"accuracy\*\* \(95% interval",
            r"(^ +[\d.]+%  \d$[\s\S]*?){3}",
        ],
    ),
    "choose_checkpoint": (
        3,
        "runs",
        [
            "24 files, 16 fine-tunings\n8 of Ti_16 from i21k on cifar100",
            r"1\.\d   +81\.50   Ti/16",  # of two blocks; 5.5 of all
            "the rule's choice  81.50%  Ti_16-i21k-300ep-lr_0.001-aug_none",
            "by hindsight       83.00%  Ti_16-i21k-300ep-lr_0.001-aug_medium2",
            "3 of 8 fine-tunings are better",
            "vit-ti16/augreg-imagenet21k: ",
            r"test accuracy [\d.]+% \([\d.% to]+\) on all 360 test images",
        ],
    ),
    "pretrain": (
        1,
        "runs/pretrained/weights.npz",
        [
            r"test loss [\d.]+, and by chance [\d.]+; accuracy",
            r"^masked      test accuracy [\d.]+%$",
        ],
    ),
    "own_photos": (
        0,
        "check.json",
        [
            "photos in photos",
            r"<iframe srcdoc=[\s\S]*Check of photos",
            r"test accuracy [\d.]+%",
            r"^file,",
        ],
    ),
    "phone": (
        2,
        "exported",
        [r"(^\S+\.tflite +\w.* [\d.]+%, [\s\S]*?){2}", r"^Keras +\w.* [\d.]+%, "],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_notebook_runs_from_top_to_bottom(name, executed):
    pictures, file, patterns = EXPECTED[name]
    cells = executed(name).cells
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    shown = [output.get("data", {}) for output in outputs]
    assert sum("image/png" in data for data in shown) == pictures
    assert pathlib.Path(file).exists()
    said = "".join(output.get("text", "") for output in outputs)
    for kind in ("text/markdown", "text/html"):
        said += "\n".join(data.get(kind, "") for data in shown)
    for pattern in patterns:
        assert re.search(pattern, said, re.M), pattern
    if name == "pretrain":
        config = json.loads(
            pathlib.Path("runs/finetuned-masked/config.json").read_text()
        )
        assert config["weights"] == "runs/masked/weights.npz"
