"""Archives of photos: what is unpacked, once, and that hostile ones do no harm."""

import gzip
import io
import os
import stat
import tarfile
import tracemalloc
import warnings
import zipfile

import pytest
from made_data import DIVIDED, examples, images, lay_out

from train.common.errors import RunError
from train.data import archives
from train.data.sources import load
from zoo.common import limits

pytestmark = pytest.mark.usefixtures("png_only")

MEGABYTES = bytes(2**25)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


def of_zip(*members):
    """Returns a zip archive of pairs, a name or `ZipInfo` and the content."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # One name twice is what is tested.
        for name, content in members:
            kind = None if isinstance(name, zipfile.ZipInfo) else zipfile.ZIP_DEFLATED
            archive.writestr(name, content, kind)
    return buffer.getvalue()


def of_tar(*members, compress=False):
    """Returns a tar archive of pairs, a name or `TarInfo` and the content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members:
            info = name
            if isinstance(name, str):
                info = tarfile.TarInfo(name)
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    whole = buffer.getvalue()
    return gzip.compress(whole) if compress else whole


def entry(kind=tarfile.REGTYPE, size=0, **more):
    info = tarfile.TarInfo("a/1.png")
    info.type, info.size = kind, size
    for name, value in more.items():
        setattr(info, name, value)
    return info


def header(info):
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(1024)


def negative_size():
    block = bytearray(entry().tobuf(tarfile.GNU_FORMAT))
    block[124:136] = b"\xff" * 10 + b"\xfe\0"
    total = sum(block[:148]) + 8 * ord(" ") + sum(block[156:])
    block[148:156] = b"%06o\0 " % total
    return bytes(block) + bytes(1024)


def zip_entry(mode=0, compression=zipfile.ZIP_STORED):
    info = zipfile.ZipInfo("a/1.png")
    info.external_attr, info.compress_type = mode << 16, compression
    return info


def encrypted():
    content = bytearray(of_zip(("a/1.png", b"x")))
    content[content.find(b"PK\x03\x04") + 6] |= 1
    content[content.find(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


def damaged():
    return of_zip((zip_entry(), b"whole")).replace(b"whole", b"whale")


PACKED = {
    "photos.zip": of_zip,
    "photos.tar": of_tar,
    "photos.tar.gz": lambda *members: of_tar(*members, compress=True),
    "photos.tgz": lambda *members: of_tar(*members, compress=True),
}


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("top", ["", "photos/", "a/photos/"])
def test_an_archive_has_what_its_folder_has(name, top, tmp_path, capsys):
    files = images({"b": 12, "a": 7})
    others = {"__MACOSX/b/._0.png": b"", f"{top}.DS_Store": b""}
    packed = {f"{top}{path}": content for path, content in files.items()} | others
    (tmp_path / name).write_bytes(PACKED[name](*packed.items()))
    source, folder = load(name), load(str(lay_out(tmp_path / "folder", files)))
    assert source.name == name and source.train.name == name
    assert source.test.name == f"the test part of {name}"
    assert source.class_names == folder.class_names and source.ignored == ()
    for part in ("train", "test"):
        assert examples(getattr(source, part)) == examples(getattr(folder, part))


def test_parts_in_an_archive_are_taken(tmp_path):
    (tmp_path / "a.zip").write_bytes(of_zip(*DIVIDED.items(), ("photos.txt", b"")))
    source = load("a.zip", log=str)
    assert [source.train.num_examples, source.test.num_examples] == [5, 3]
    assert source.ignored == ("photos.txt",)


def test_folders_of_windows_and_of_tar_are_those_of_others(tmp_path):
    for name, content in {
        "a.zip": of_zip(("a\\", b""), ("a\\1.png", b"1"), ("b\\2.png", b"2")),
        "a.tar": of_tar((entry(tarfile.DIRTYPE, name="./a"), b""), ("./a/1.png", b"1")),
    }.items():
        (tmp_path / name).write_bytes(content)
        assert (archives.unpacked(name) / "a" / "1.png").read_bytes() == b"1"


def test_an_archive_is_unpacked_once_and_anew_where_it_changes(tmp_path, cache):
    (tmp_path / "a.zip").write_bytes(of_zip(("a/1.png", b"1"), ("b/1.png", b"")))
    folder = archives.unpacked("a.zip")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archives, "_unpack", None)
        assert archives.unpacked("a.zip") == folder
    (tmp_path / "a.zip").write_bytes(of_zip(("a/1.png", b"2"), ("b/1.png", b"")))
    other = archives.unpacked("a.zip")
    assert [(one / "a/1.png").read_bytes() for one in (folder, other)] == [b"1", b"2"]
    assert sorted(os.listdir(cache / "data")) == sorted([folder.name, other.name])


def test_another_process_may_unpack_the_same_archive(tmp_path, cache, monkeypatch):
    (tmp_path / "a.zip").write_bytes(of_zip(("a/1.png", b"1"), ("b/1.png", b"")))
    unpack = archives._unpack

    def unpack_twice(path, folder):
        unpack(path, folder)
        monkeypatch.setattr(archives, "_unpack", unpack)
        archives.unpacked(path)

    monkeypatch.setattr(archives, "_unpack", unpack_twice)
    assert (archives.unpacked("a.zip") / "a/1.png").read_bytes() == b"1"
    assert len(os.listdir(cache / "data")) == 1


OUT = "which leads out of its folder"
KIND = "is a link or a device"
# The name and the content of an archive, and what the message must say.
HOSTILE = [
    ("a.zip", of_zip(("../1.png", b"")), OUT),
    ("a.zip", of_zip(("a/../../1.png", b"")), OUT),
    ("a.zip", of_zip(("/tmp/1.png", b"")), OUT),
    ("a.zip", of_zip(("a\\..\\..\\1.png", b"")), OUT),
    ("a.zip", of_zip(("C:/1.png", b"")), OUT),
    ("a.zip", of_zip((zip_entry(stat.S_IFLNK), b"/etc/passwd")), KIND),
    ("a.zip", of_zip((zip_entry(stat.S_IFIFO), b"")), KIND),
    ("a.zip", of_zip((zip_entry(0, zipfile.ZIP_LZMA), b"")), "other means than defl"),
    ("a.zip", encrypted(), "a/1.png is encrypted"),
    ("a.zip", of_zip(("a/1.png", b""), ("a/1.png", b"")), "has a/1.png twice"),
    ("a.zip", of_zip(("a/1", b""), ("a/1/2.png", b"")), "as a file and a folder"),
    ("a.zip", of_zip(("a/1\n.png", b"")), "control characters"),
    ("a.zip", of_zip(("a/1.png", MEGABYTES)), "33,554,432 bytes"),
    ("a.zip", damaged(), "Bad CRC-32"),
    ("a.zip", b"text", "another kind than its name says (File is not a zip file)"),
    ("a.zip", b"", "is damaged"),
    ("a.tar", of_tar(("../1.png", b"")), OUT),
    ("a.tar", of_tar(("/tmp/1.png", b"")), OUT),
    ("a.tar", of_tar((entry(tarfile.SYMTYPE, linkname="/etc/passwd"), b"")), KIND),
    ("a.tar", of_tar((entry(tarfile.LNKTYPE, linkname="/etc/passwd"), b"")), KIND),
    ("a.tar", of_tar((entry(tarfile.CHRTYPE), b"")), KIND),
    ("a.tar", of_tar((entry(tarfile.FIFOTYPE), b"")), KIND),
    ("a.tar", of_tar(("a/1.png", b""), ("a/1.png", b"")), "has a/1.png twice"),
    ("a.tar", header(entry(size=2**40)), "1,099,511,627,776 bytes"),
    ("a.tar", negative_size(), "-512 bytes"),
    ("a.tar", header(entry(size=5000)), "unexpected end of data"),
    ("a.tar", b"text" * 200, "is damaged"),
    ("a.tgz", of_tar(("a/1.png", MEGABYTES), compress=True), "33,554,432 bytes"),
    # A hidden file is not unpacked, but would be read.
    ("a.tgz", of_tar((".a", MEGABYTES), compress=True), "33,554,432 bytes"),
    (
        "a.tgz",
        gzip.compress(entry(tarfile.XHDTYPE, 2**30).tobuf() + MEGABYTES),
        "a header in it has more than 4,194,304 bytes",
    ),
    ("a.tgz", of_tar(("a/1.png", b"x"), compress=True)[:-20], "end-of-stream marker"),
    ("a.tgz", of_zip(("a/1.png", b"")), "Not a gzipped file"),
]


@pytest.mark.parametrize("row", HOSTILE, ids=lambda row: f"{row[0]} {row[2]}")
def test_hostile_archives_are_refused_and_leave_nothing(row, tmp_path, cache):
    name, content, told = row
    (tmp_path / name).write_bytes(content)
    before = {path for path in tmp_path.parent.rglob("*") if cache not in path.parents}
    tracemalloc.start()
    with pytest.raises(RunError, match=f"^{name} ") as refused:
        archives.unpacked(name)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert told in str(refused.value)
    assert len(str(refused.value)) < 500 and str(refused.value).isprintable()
    assert peak < 2**24
    after = {path for path in tmp_path.parent.rglob("*") if cache not in path.parents}
    assert after - before == {cache} and os.listdir(cache / "data") == []


def test_an_archive_of_too_many_files_is_refused(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(archives, "ARCHIVE_MEMBERS", 2)
    names = (f"a/{number}.png" for number in range(3))
    (tmp_path / "a.zip").write_bytes(of_zip(*((name, b"") for name in names)))
    with pytest.raises(RunError, match="has more than 2 files"):
        archives.unpacked("a.zip")
    assert os.listdir(cache / "data") == []


def test_a_directory_of_a_zip_archive_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "ARCHIVE_DIRECTORY_BYTES", 100)
    names = (f"a/{number}.png" for number in range(30))
    (tmp_path / "a.zip").write_bytes(of_zip(*((name, b"") for name in names)))
    with pytest.raises(RunError, match="a header in it has more than 100 bytes"):
        archives.unpacked("a.zip")
    assert limits.ARCHIVE_DIRECTORY_BYTES < 2**30


def test_what_is_in_the_way_of_the_cache_is_named(tmp_path, cache):
    (tmp_path / "a.zip").write_bytes(of_zip(("a/1.png", b"")))
    cache.write_text("a file")
    with pytest.raises(RunError, match="Cannot unpack a.zip into .*KERAS_VIT_CACHE"):
        archives.unpacked("a.zip")
