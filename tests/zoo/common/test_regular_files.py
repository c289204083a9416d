"""Only files are read, never waited for, and no more of them than expected."""

import os
import pathlib
import socket
import tracemalloc

import pytest

import zoo
from zoo.common import limits, regular_files
from zoo.common.regular_files import NoHomeError, expand_home

READERS = {
    "check": regular_files.check,
    "open_regular": regular_files.open_regular,
    "read_bytes": lambda path: regular_files.read_bytes(path, 10),
    "read_text": lambda path: regular_files.read_text(path, 10),
}


@pytest.fixture
def others(tmp_path, monkeypatch):
    """Paths of what is not a file, by what it is called."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")
    # The path of a socket has 107 bytes at most.
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket")
        yield {
            "a FIFO": tmp_path / "fifo",
            "a FIFO ": tmp_path / "link",
            "a socket": tmp_path / "socket",
            "a device": pathlib.Path(os.devnull),
            "a folder": tmp_path,
        }


@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_file_is_refused_and_never_waited_for(others, reader, monkeypatch):
    for kind, path in others.items():
        with pytest.raises(OSError, match=kind.strip()) as caught:
            READERS[reader](path)
        assert str(path) in str(caught.value)
        assert "move it away" in str(caught.value)
    with pytest.raises(FileNotFoundError):
        READERS[reader](others["a FIFO"].with_name("none"))
    # A FIFO that replaces a file once it was looked at is not read either.
    monkeypatch.setattr(regular_files, "check", lambda path, **_: None)
    with pytest.raises(regular_files.NotRegularError, match="a FIFO"):
        regular_files.open_regular(others["a FIFO"])


def test_a_file_is_read_whole_to_its_last_allowed_byte_in_bounded_memory(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a\r\nb\rc\n\xc3\xa4")
    assert regular_files.read_bytes(path, 9) == path.read_bytes()
    assert regular_files.read_text(path, 9) == "a\nb\nc\nä"
    with pytest.raises(regular_files.TooLargeError, match="more than 8 bytes"):
        regular_files.read_bytes(path, 8)
    os.truncate(path, 2**40)
    tracemalloc.start()
    with pytest.raises(regular_files.TooLargeError):
        regular_files.read_bytes(path, 2**30)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="Linux")
def test_a_file_without_a_size_is_read_and_bounded():
    assert regular_files.read_text("/proc/self/status", 2**20)
    with pytest.raises(regular_files.TooLargeError):
        regular_files.read_text("/proc/self/status", 10)


def test_sizes_of_images_beyond_the_limits_are_refused():
    sides = (20_000, 20_000), (1, 10_000), (5_000, 5_000), (0, 4), (4,), (True, 4)
    for size in sides:
        with pytest.raises(ValueError, match="its images"):
            limits.check_image_size(size)
    assert limits.check_image_size([4096, 4096]) == (4096, 4096)


def test_text_in_another_encoding_is_named_with_what_to_do(tmp_path):
    file = tmp_path / "class_names.txt"
    for encoding in ("utf-16", "latin-1"):
        file.write_bytes("daisy\népinette\n".encode(encoding))
        with pytest.raises(regular_files.NotTextError, match="not text in UTF-8.*save"):
            regular_files.read_text(file, 100)
    file.write_bytes("daisy\népinette\n".encode("utf-8-sig"))
    assert regular_files.read_text(file, 100, "utf-8-sig") == "daisy\népinette\n"


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
