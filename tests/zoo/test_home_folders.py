import pathlib

import pytest

import zoo
from zoo.common.regular_files import NoHomeError, expand_home


def test_a_home_folder_is_expanded_and_that_of_nobody_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expand_home("~/runs") == tmp_path / "runs"
    assert expand_home(pathlib.Path("~")) == tmp_path
    assert expand_home("a/~b") == pathlib.Path("a/~b")
    for use in (expand_home, zoo.fetch, zoo.read, zoo.locate, zoo.get):
        with pytest.raises(NoHomeError, match="~nobody_here.*write the whole path"):
            use("~nobody_here/photos")


@pytest.mark.parametrize("path", [["a.npz"], ("a", "b"), 3, None, b"a.npz"])
def test_what_is_no_path_is_named(path):
    for use in (zoo.read, zoo.locate, zoo.fetch, zoo.verify, zoo.registry.read):
        with pytest.raises(TypeError, match="must be one path, a str or os.PathLike"):
            use(path)
    with pytest.raises(TypeError, match="^path must be one path"):
        zoo.write(path, {})
