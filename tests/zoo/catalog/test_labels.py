import hashlib
import importlib.util
import json
import pathlib

import pytest

import zoo
from zoo import store

IDS = [f"n{index:08d}" for index in range(21843)]


@pytest.fixture(autouse=True)
def put(tmp_path, monkeypatch):
    """Puts a list into the cache, and returns its path."""
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path))
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")

    def put(data_set, lines):
        path = store._cached_path(zoo.LABEL_FILES[data_set])
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return put


def test_imagenet2012_is_in_the_package():
    """Written as `keras.applications` downloads it, it has the checksum there."""
    names = zoo.class_names("imagenet2012")
    assert all(type(row) is tuple for row in names)
    assert names[207] == ("n02099601", "golden retriever")
    written = [[number, name.replace(" ", "_")] for number, name in names]
    text = json.dumps({str(index): row for index, row in enumerate(written)})
    keras = pathlib.Path(importlib.util.find_spec("keras").origin).parent
    utils = (keras / "src" / "applications" / "imagenet_utils.py").read_text()
    assert f'"{hashlib.md5(text.encode()).hexdigest()}"' in utils


def test_imagenet21k_pairs_ids_with_lemmas(put):
    with pytest.raises(zoo.StoreError, match="imagenet21k_wordnet_ids.txt"):
        zoo.class_names("imagenet21k")
    put("imagenet21k_ids", IDS)
    put("imagenet21k_lemmas", (f"é, {name}" for name in IDS))
    names = zoo.class_names("imagenet21k")
    assert len(names) == 21843
    assert names[21842] == ("n00021842", "é, n00021842")
    path = put("imagenet21k_lemmas", ["organism, being"])
    with pytest.raises(zoo.StoreError, match=f"{path} should list the 21843 .*delete"):
        zoo.class_names("imagenet21k")
    with pytest.raises(zoo.CatalogError, match="'cifar10'.*imagenet2012, imagenet21k"):
        zoo.class_names("cifar10")


@pytest.mark.parametrize(
    "ids",
    [["organism"] * 21843, ["n00000001\x1b[2J"] * 21843, IDS[:-1], [*IDS, "n9"], []],
)
def test_a_file_that_is_no_list_of_ids(put, ids):
    path = put("imagenet21k_ids", ids)
    put("imagenet21k_lemmas", IDS)
    with pytest.raises(zoo.StoreError, match=f"{path} and .* list the 21843 classes"):
        zoo.class_names("imagenet21k")
