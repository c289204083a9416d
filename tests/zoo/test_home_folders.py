import pathlib

import pytest

import zoo
from zoo.common.regular_files import NoHomeError, expand_home


def test_a_home_folder_is_expanded(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expand_home("~/runs") == tmp_path / "runs"
    assert expand_home(pathlib.Path("~")) == tmp_path
    assert expand_home("a/~b") == pathlib.Path("a/~b")


@pytest.mark.parametrize("use", [expand_home, zoo.fetch, zoo.read, zoo.locate, zoo.get])
def test_the_home_of_nobody_is_an_error_of_the_system(use):
    with pytest.raises(OSError, match="~nobody_here"):
        use("~nobody_here/photos")


def test_the_error_says_what_to_do():
    with pytest.raises(NoHomeError, match="write the whole path"):
        expand_home("~nobody_here/photos")


@pytest.mark.parametrize("path", [["a.npz"], ("a", "b"), 3, None, b"a.npz"])
def test_what_is_no_path_is_named(path):
    for use in (zoo.read, zoo.locate, zoo.fetch, zoo.verify, zoo.registry.read):
        with pytest.raises(TypeError, match="must be one path, a str or os.PathLike"):
            use(path)
    with pytest.raises(TypeError, match="^path must be one path"):
        zoo.write(path, {})
