"""Classes of a data set are found among those of a model."""

import pytest
from evaluated import tiny

import zoo
from train.common.errors import RunError
from train.models import classes, loaded_model
from train.models.run_directory import how_to_name, read_names
from train.scoring.class_matching import match_classes

IMAGENET = [(f"n{index:08d}", f"thing_{index}") for index in range(998)]
IMAGENET += [("n00000998", "crane"), ("n00000999", "crane")]
NO_NUMBERS = "10 of the data set's 10 classes are not"
THINGS = [name for _, name in IMAGENET]


@pytest.fixture
def imagenet(monkeypatch):
    monkeypatch.setattr(zoo, "class_names", lambda data_set: IMAGENET)


@pytest.mark.parametrize(
    ("head", "data", "expected"),
    [
        ("imagenet2012", ["n00000998", "Thing 7", "n00000003"], [998, 7, 3]),
        ("imagenet2012", ["N00000017", "THING-7", " thing  8"], [17, 7, 8]),
        ("imagenet2012", ["thing_3, Tinca tinca", "n00000001"], [3, 1]),
        ("imagenet2012", ["0", "17", "0999"], [0, 17, 999]),
        # As many classes need not have the same order.
        ("imagenet2012", [f"n{index:08d}" for index in range(999, -1, -1)],
         [*range(999, -1, -1)]),
        (None, ["0", "17", "0999"], [0, 17, 999]),
        (THINGS, ["n00000999", "thing 4"], [999, 4]),
        (["n00000005", "n00000999"], ["thing_5"], [0]),
        (["thing 5", "own"], ["n00000005"], [0]),
        (["Red", "red", "blue"], ["red", "BLUE"], [1, 2]),
        (["0", "1", "2"], ["2"], [2]),
        (["cat", "dog"], ["1", "0"], [1, 0]),
        # macOS has accents as characters of their own in names of folders.
        (["\xe9t\xe9", "winte\u0301r"], ["wint\xe9r", "E\u0301te\u0301"], [1, 0]),
    ],
)  # fmt: skip
def test_ways_to_name_classes(imagenet, head, data, expected):
    outputs = 1000 if head in (None, "imagenet2012") else len(head)
    shown, places, are_numbers = match_classes(outputs, head, data, numbers=True)
    assert places.tolist() == expected and len(shown) == outputs
    assert head != "imagenet2012" or shown[7] == "thing_7"
    assert are_numbers == (head != ["0", "1", "2"] and "0" in data)


@pytest.mark.parametrize(
    ("outputs", "head", "data", "told"),
    [
        (1000, None, ["1", "1000"], "numbers up to 1000, but .* from 0 to 999"),
        (1000, None, THINGS, "1000 classes, whose names are not known"),
        (1000, None, ["ant"], "or imagenet2012 alone if they are ImageNet's"),
        (1000, "imagenet2012", ["0", "thing_1"], '1 of the data .* 2 classes .*: "0";'),
        (1000, "imagenet2012", ["crane", "thing_1"], "WordNet id.*98 or n00000999"),
        (1000, THINGS, ["crane"], "n00000998 or n00000999"),
        (1000, "imagenet2012", [f"bird {index}" for index in range(1000)],
         "1000 of the data set's 1000 classes are not"),
        (2, ["a b", "A_B"], ["a-b"], "classes 0 .'a b'. and 1 .'A_B'.: give these"),
        (2, None, ["ant", "bee"], "class_names.txt beside the model, one per"),
        (7, None, list("abcdefghij"), "has 7 classes.*data set has 10"),
        # Numbers are places only where asked for.
        (1000, "imagenet2012", list("0123456789"), NO_NUMBERS),
        (2, ["ant", "bee"], ["ant", "cow", "emu"],
         "2 of the data set's 3 classes.*cow, emu;.*ant"),
    ],
)  # fmt: skip
def test_names_that_are_not_clear(imagenet, outputs, head, data, told):
    with pytest.raises(RunError, match=told):
        match_classes(outputs, head, data, numbers=told != NO_NUMBERS)


def test_a_thousand_classes_are_named_by_imagenets_list(tmp_path, monkeypatch):
    """Weights by their path have no names; a command told to write all 1,000."""
    assert "imagenet" not in how_to_name(10)
    file = tmp_path / "class_names.txt"
    for text in ("imagenet2012", "imagenet2012\n"):
        file.write_text(text)
        names = read_names(file)
        assert len(names) == 1000 and names[0] == "tench"
    file.write_text("imagenet2013\n")
    assert read_names(file) == ("imagenet2013",)
    # A list that cannot be downloaded is named with its file.
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path))
    file.write_text("imagenet21k\n")
    with pytest.raises(RunError) as found:
        read_names(file)
    assert f"{file} means the list imagenet21k, which is not" in str(found.value)
    assert "KERAS_VIT_OFFLINE is set: unset it" in str(found.value)
    with pytest.raises(RunError, match="KERAS_VIT_OFFLINE"):
        match_classes(21843, "imagenet21k", ["tench"])


def test_names_beside_a_model_go_before_its_own_where_they_are_as_many(tmp_path):
    path, own = tmp_path / "renamed.keras", ("red hot", "green", "blue")
    tiny(3, class_names=own).save(path)
    loaded = loaded_model.load(str(path))
    assert loaded.class_names == classes.classes_of(loaded).names == own
    assert loaded_model.load(str(path), image_size=48).class_names == own
    assert loaded_model.load(str(path), features=True).class_names is None
    # These were corrected by hand; those of another model do not fit.
    for text, names in (("red\ngreen\nblue\n", ("red", "green", "blue")), ("a", own)):
        (tmp_path / "class_names.txt").write_text(text)
        assert loaded_model.load(str(path)).class_names == names
