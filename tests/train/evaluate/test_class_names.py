"""Classes of a data set are found among those of a model."""

import pytest

import zoo
from train.common.errors import RunError
from train.models.run_directory import how_to_name, read_names
from train.scoring.class_matching import by_number, match_classes

IMAGENET = [(f"n{index:08d}", f"thing_{index}") for index in range(998)]
IMAGENET += [("n00000998", "crane"), ("n00000999", "crane")]


@pytest.fixture
def imagenet(monkeypatch):
    monkeypatch.setattr(zoo, "class_names", lambda data_set: IMAGENET)


def test_imagenet_classes_by_id_and_by_name(imagenet, monkeypatch):
    data = ["n00000998", "Thing 7", "n00000003"]
    shown, places = match_classes(1000, "imagenet2012", data)
    assert places.tolist() == [998, 7, 3] and shown[7] == "thing_7"
    with pytest.raises(RunError, match="crane.*WordNet id.*n00000998 or n00000999"):
        match_classes(1000, "imagenet2012", ["crane", "thing_1"])
    many = [f"n{index:08d}" for index in range(1000)]
    assert match_classes(1000, "imagenet2012", many)[1].tolist() == list(range(1000))

    def offline(data_set):
        raise zoo.StoreError("no network")

    monkeypatch.setattr(zoo, "class_names", offline)
    with pytest.raises(RunError, match="no network"):
        match_classes(1000, "imagenet2012", ["tench"])


def test_as_many_classes_are_not_the_same_classes(monkeypatch):
    """In the order of the data set, ImageNet's would be taken for others."""
    names = [(f"n{index:08d}", f"thing_{index}") for index in range(1000)]
    monkeypatch.setattr(zoo, "class_names", lambda data_set: names)
    turned = [f"thing {index}" for index in reversed(range(1000))]
    shown, places = match_classes(1000, "imagenet2012", turned)
    assert places.tolist() == list(reversed(range(1000))) and shown[3] == "thing_3"
    with pytest.raises(RunError, match="1000 of the data set's 1000 classes are not"):
        match_classes(1000, "imagenet2012", [f"bird {index}" for index in range(1000)])
    with pytest.raises(RunError, match="class_names.txt beside the model, one per"):
        match_classes(2, None, ["ant", "bee"])
    with pytest.raises(RunError, match="1000 classes, whose names are not known"):
        match_classes(1000, None, turned)


def test_a_thousand_unnamed_classes_are_named_by_the_list_of_imagenet(tmp_path):
    """Weights by their path have no names; a command told to write all 1,000."""
    with pytest.raises(RunError, match="or imagenet2012 alone if they are ImageNet's"):
        match_classes(1000, None, ["ant"])
    assert "imagenet" not in how_to_name(10)
    file = tmp_path / "class_names.txt"
    for text in ("imagenet2012", "imagenet2012\n"):
        file.write_text(text)
        names = read_names(file)
        assert len(names) == 1000 and names[0] == "tench"
    file.write_text("imagenet2013\n")
    assert read_names(file) == ("imagenet2013",)


def test_a_list_that_cannot_be_downloaded_is_named_with_its_file(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path))
    file = tmp_path / "class_names.txt"
    file.write_text("imagenet21k\n")
    with pytest.raises(RunError) as found:
        read_names(file)
    assert f"{file} means the list imagenet21k, which is not" in str(found.value)
    assert "KERAS_VIT_OFFLINE is set: unset it" in str(found.value)


@pytest.mark.parametrize(
    ("head", "data", "expected"),
    [
        ("imagenet2012", ["N00000017", "THING-7", " thing  8"], [17, 7, 8]),
        ("imagenet2012", ["thing_3, Tinca tinca", "n00000001"], [3, 1]),
        ("imagenet2012", ["0", "17", "0999"], [0, 17, 999]),
        (None, ["0", "17", "0999"], [0, 17, 999]),
        ([name for _, name in IMAGENET], ["n00000999", "thing 4"], [999, 4]),
        (["n00000005", "n00000999"], ["thing_5"], [0]),
        (["thing 5", "own"], ["n00000005"], [0]),
        (["Red", "red", "blue"], ["red", "BLUE"], [1, 2]),
        (["0", "1", "2"], ["2"], [2]),
        (["cat", "dog"], ["1", "0"], [1, 0]),
    ],
)
def test_ways_to_name_classes(imagenet, head, data, expected):
    outputs = 1000 if head in (None, "imagenet2012") else len(head)
    shown, places = match_classes(outputs, head, data, numbers=True)
    assert places.tolist() == expected and len(shown) == outputs
    assert by_number(shown, places, data) == (head != ["0", "1", "2"] and "0" in data)


THINGS = [name for _, name in IMAGENET]


@pytest.mark.parametrize(
    ("outputs", "head", "data", "told"),
    [
        (1000, None, ["1", "1000"], "numbers up to 1000, but .* from 0 to 999"),
        (1000, "imagenet2012", ["0", "thing_1"], "1 of the data .* 2 classes .*: 0;"),
        (1000, THINGS, ["crane"], "n00000998 or n00000999"),
        (2, ["a b", "A_B"], ["a-b"], "classes 0 .'a b'. and 1 .'A_B'.: give these"),
        (7, None, list("abcdefghij"), "has 7 classes.*data set has 10"),
        (2, ["ant", "bee"], ["ant", "cow", "emu"],
         "2 of the data set's 3 classes.*cow, emu;.*ant"),
    ],
)  # fmt: skip
def test_names_that_are_not_clear(imagenet, outputs, head, data, told):
    with pytest.raises(RunError, match=told):
        match_classes(outputs, head, data, numbers=True)


def test_numbers_are_places_only_where_asked_for(imagenet):
    with pytest.raises(RunError, match="10 of the data set's 10 classes are not"):
        match_classes(1000, "imagenet2012", list("0123456789"))
