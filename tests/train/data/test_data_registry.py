"""What the name of a data set means."""

import pathlib
import re

import pytest
from made_data import png

from train.data import registry

DOCS = pathlib.Path(__file__).parents[3] / "docs"


def test_the_docs_have_every_source_in_the_order_of_matching(tmp_path, monkeypatch):
    page = (DOCS / "data.md").read_text()
    rows = re.findall(r"(?m)^\| (`.*?`) \| ", page.partition("\n\nThey are tried")[0])
    names = [name for row in rows for name in re.findall("`(.*?)`", row)]
    # These are names of their own only where such folders exist.
    names.remove("records/")
    monkeypatch.chdir(tmp_path)
    for path in ("scenes/images/1.png", "scenes/masks/1.png"):
        pathlib.Path(path).parent.mkdir(parents=True)
        pathlib.Path(path).write_bytes(png(0, channels=1))
    assert (*dict.fromkeys(map(registry.kind_of, names)),) == registry.SOURCES


KINDS = {
    "digits": "digits",
    "vtab/dtd": "vtab",
    "vtab-full/kitti_distance": "vtab",
    "photos.csv": "csv",
    "cifar100/Photos.CSV": "csv",
    "photos.zip": "archive",
    "a/photos.tar": "archive",
    "photos.TAR.GZ": "archive",
    "~/photos.tgz": "archive",
    "records/train-*": "tfrecord",
    "/data/*.tfrecord": "tfrecord",
    "photos/": "folder",
    "~/photos": "folder",
    "a/b/c": "folder",
    "cifar100": "tfds",
    "cifar100:3.*.*": "tfds",
    "eurosat/rgb:2.*.*": "tfds",
}
PACKAGES = {"digits": ("sklearn",)}
PACKAGES |= dict.fromkeys(["vtab", "tfds"], ("tensorflow_datasets",))


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_what_a_name_means_and_needs(name, kind):
    found = registry.kind_of(name)
    assert (found.name, found.packages) == (kind, PACKAGES.get(kind, ()))


def test_an_existing_folder_is_only_digits_and_vtab_by_their_names(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    kinds = {"digits": "digits", "vtab/dtd": "vtab", "./vtab/dtd": "folder"}
    kinds |= dict.fromkeys(["photos.csv", "photos.zip", "cifar100"], "folder")
    for name in kinds:
        pathlib.Path(name).mkdir(parents=True, exist_ok=True)
    assert {name: registry.kind_of(name).name for name in kinds} == kinds


def test_names_of_one_data_set():
    assert registry.is_same("photos.csv", "./photos.csv")
    assert not registry.is_same("cifar10", "cifar100")
    assert registry.short_name("vtab/dtd") == "vtab-dtd"
    assert registry.short_name("a/my photos.tar.gz") == "my_photos"
    names = [registry.short_name(f"a/b{end}", True) for end in ("/", ".csv", ".zip")]
    assert names == ["b", "b.csv", "b.zip"]
