"""Every block of the README and of the pages in docs is executed as a reader would.

Blocks of a page run in order, in a folder like the reader's (doc_reader.py): Python in
one namespace, and what it prints is the text that follows; commands cut down to
seconds (doc_commands.py). The tutorials are notebooks and have tests of their own.
"""

import contextlib
import io
import os
import pathlib
import shutil
import sys
import unittest.mock

import doc_blocks
import doc_commands
import doc_reader
import keras
import matplotlib
import pytest
import small_variants
from fork_server import ForkServer
from released_files import Released
from serving import serving_files

PAGES = doc_blocks.pages()
TUTORIALS = sorted((doc_blocks.ROOT / "docs" / "tutorials").glob("*.md"))
ALL_PAGES = [*PAGES, *TUTORIALS]
EXECUTED = [
    page
    for page in PAGES
    if {"python", "console"} & {block.language for block in doc_blocks.blocks(page)}
]
# CI lacks these; a page that needs one is skipped there.
OPTIONAL = ("jax", "torch", "timm", "transformers", "keras_hub")
# These print what a reader's own model says to a photo, and do not show it.
VARYING = ("README.md", "docs/quick_start.md")
# These pages print a variant's real size; on others variants are small.
FULL_SIZE = ("docs/paper.md", "docs/troubleshooting.md")
TESTS = pathlib.Path(__file__).parent
SEEN = set()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The reader's folder, which each page gets a copy of, and the server."""
    root = tmp_path_factory.mktemp("reader")
    folder = root / "folder"
    folder.mkdir()
    (root / "tensorflow_datasets").mkdir()
    (folder / "tfds").symlink_to(root / "tensorflow_datasets")
    doc_reader.make_folder(folder)
    with serving_files(root / "released", Released) as released:
        environment = {
            **os.environ,
            "HOME": str(root),
            "KERAS_VIT_CACHE": str(root / "cache"),
            "KERAS_VIT_MIRROR": released.url,
            "MPLCONFIGDIR": matplotlib.get_cachedir(),
            "PYTHONPATH": os.pathsep.join([str(doc_blocks.ROOT), str(TESTS)]),
            "TF_CPP_MIN_LOG_LEVEL": "2",
            **small_variants.ENVIRONMENT,
        }
        forks = ForkServer(environment)
        environment["FORKED_PYTHON"] = str(forks.python)
        yield folder, forks
        forks.close()


@pytest.fixture
def reader(page, made, tmp_path, monkeypatch):
    """Somebody in a folder of their own."""
    folder, forks = made
    text = page.read_text()
    for run, flags in doc_reader.RUNS.items():
        if run in text and not (folder / run).exists():
            words = ["train.finetune", *flags, f"--run_dir={run}"]
            code, output = forks.run(words, folder, {})
            assert code == 0, output
    shutil.copytree(folder, tmp_path / "folder", symlinks=True)
    monkeypatch.chdir(tmp_path / "folder")
    if doc_blocks.name(page) not in FULL_SIZE:
        small_variants.shrink(monkeypatch)
    # Pages may start a new Python.
    monkeypatch.setattr(sys, "executable", str(forks.python))
    policy = keras.config.dtype_policy()
    # A page may export more.
    with unittest.mock.patch.dict(os.environ, forks.environment):
        yield doc_commands.Reader(tmp_path / "folder", forks, SEEN)
    keras.config.set_dtype_policy(policy)
    keras.utils.clear_session()
    shutil.rmtree(tmp_path / "folder")


def execute(block, following, namespace):
    """Executes Python; what it prints is what follows."""
    printed = io.StringIO()
    code = compile("\n" * block.line + block.text, str(block.page), "exec")
    try:
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL:
            raise doc_blocks.PageError(f"{block.at()}: {error}") from error
        raise doc_commands.Skipped(f"{block.at()}: {error}") from error
    except Exception as error:
        line = error.__traceback__.tb_next.tb_lineno - block.line
        raise doc_blocks.PageError(
            f"{block.at(line)}: {type(error).__name__}: {error}"
        ) from error
    found = following.text if following and following.language == "text" else ""
    if printed.getvalue() and (found or doc_blocks.name(block.page) not in VARYING):
        assert found == printed.getvalue(), f"{block.at()} prints something else"


@pytest.mark.parametrize("page", ALL_PAGES, ids=doc_blocks.name)
def test_blocks_have_a_language_and_photos_are_opened_upright(page):
    """As phones take them, and as the commands read them."""
    for block in doc_blocks.blocks(page):
        assert block.language in doc_blocks.LANGUAGES, block.at()
        for number, line in enumerate(block.text.splitlines(), 1):
            opens = "Image.open(" in line or "load_img(" in line
            assert not opens or "exif_transpose(" in line, (
                f"{block.at(number)}: turn the photo by ImageOps.exif_transpose"
            )


def test_every_rule_is_of_use():
    blocks = [block for page in PAGES for block in doc_blocks.blocks(page)]
    found = {
        doc_commands.rule_of(command)[0]
        for block in blocks
        if block.language == "console"
        for command in doc_blocks.commands(block)
    }
    assert found == set(doc_commands.RULES)


@pytest.mark.slow
@pytest.mark.parametrize("page", EXECUTED, ids=doc_blocks.name)
def test_blocks_do_what_they_say(page, reader):
    blocks = doc_blocks.blocks(page)
    namespace = {"__name__": "__main__"}
    skipped = []
    for index, block in enumerate(blocks):
        following = blocks[index + 1] if index + 1 < len(blocks) else None
        code = "".join(block.text for block in blocks[index + 1 :])
        try:
            if block.language == "python":
                execute(block, following, namespace)
            elif block.language == "console":
                for command in doc_blocks.commands(block):
                    reader.type(command, command.rest + code)
        except doc_commands.Skipped as reason:
            skipped.append(str(reason))
    if skipped:
        pytest.skip("; ".join(skipped))
