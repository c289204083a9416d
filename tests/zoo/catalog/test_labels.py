import json

import pytest

import zoo
from zoo import store

IDS = [f"n{index:08d}" for index in range(21843)]


def put(data_set, text):
    path = store._cached_path(zoo.LABEL_FILES[data_set])
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")


def test_imagenet2012_is_in_the_order_of_its_numbers():
    table = {str(i): [IDS[i], f"name_{i}"] for i in reversed(range(1000))}
    put("imagenet2012", json.dumps(table))
    names = zoo.class_names("imagenet2012")
    assert len(names) == 1000
    assert names[0] == (IDS[0], "name_0")
    assert names[999] == (IDS[999], "name_999")


def test_imagenet21k_pairs_ids_with_lemmas():
    put("imagenet21k_ids", "\n".join(IDS) + "\n")
    put("imagenet21k_lemmas", "\n".join(f"é, {name}" for name in IDS) + "\n")
    names = zoo.class_names("imagenet21k")
    assert len(names) == 21843
    assert names[21842] == ("n00021842", "é, n00021842")
    path = put("imagenet21k_lemmas", "organism, being\n")
    with pytest.raises(zoo.StoreError, match=f"{path} should list the 21843 .*delete"):
        zoo.class_names("imagenet21k")


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        "{}",
        json.dumps({"0": ["n01440764", "tench"]}),
        json.dumps({str(i): ["tench"] for i in range(1000)}),
        json.dumps({str(i): i for i in range(1000)}),
        json.dumps({str(i + 1): ["n01440764", "tench"] for i in range(1000)}),
        json.dumps({str(i): [1, 2] for i in range(1000)}),
    ],
)
def test_a_file_that_is_no_list_of_names(text):
    path = put("imagenet2012", text)
    with pytest.raises(zoo.StoreError, match=f"{path} should list the 1000 classes"):
        zoo.class_names("imagenet2012")


def test_what_cannot_be_had():
    with pytest.raises(zoo.StoreError, match="imagenet_class_index.json"):
        zoo.class_names("imagenet2012")
    with pytest.raises(zoo.CatalogError, match="'cifar10'.*imagenet2012, imagenet21k"):
        zoo.class_names("cifar10")
