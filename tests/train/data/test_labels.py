"""Labels of the tasks beside classes: read from tables, counted, divided, refused."""

import numpy as np
import pytest
from labelled_photos import photos, write

from train import recipes, tasks
from train.common.errors import RunError
from train.data import early_checks, labels, sources
from train.data.checking import DataError
from train.data.columns import USUAL, Columns
from train.data.options import DataOptions
from train.data.sources.subset import hold_out, limited
from train.tasks import kind_of_task

LABELS, NUMBER = DataOptions(task="labels"), DataOptions(task="number")


@pytest.fixture
def table(tmp_path):
    """Writes a table of the first photos, whose rows have what follows their path."""
    names, _, _ = photos(tmp_path, 8)

    def put(header, *rows, file="photos.csv"):
        own = [(name, *row) for name, row in zip(names, rows, strict=False)]
        return write(tmp_path / file, ("path", *header), own)

    return put


def loaded(path, options=LABELS):
    """Returns names and labels of all photos, in the order of the table."""
    source = sources.load(path, options, validation_fraction=None)
    return source.class_names, source.all.labels(), source


def test_labels_in_one_column_and_in_columns_are_the_same(table):
    one = table(["labels"], ["cat|dog"], ["dog"], [" cat | dog "], ["eel"])
    columns = table(
        ["dog", "eel", "cat"],
        *(["1", "0", "1"], ["1.0", "0.0", "0"], ["1", "0", "1"], ["0", "1", "0"]),
        file="columns.csv",
    )
    expected = [[1, 1, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]]
    for path in (one, columns):
        names, values, _ = loaded(path)
        assert names == ("cat", "dog", "eel")
        np.testing.assert_array_equal(values, expected)


def test_photos_without_labels_are_those_of_columns_alone(table):
    rows = (["1", "0"], ["0", "0"], ["0", "1"])
    _, values, source = loaded(table(["cat", "dog"], *rows))
    assert values.tolist() == [[1, 0], [0, 0], [0, 1]] and not source.ignored
    # An empty text says that nobody has looked at the photo.
    _, values, source = loaded(table(["label"], ["cat"], [""], ["dog"]))
    assert values.tolist() == [[1, 0], [0, 1]]
    assert ["line 3" in one for one in source.ignored] == [True]


def test_labels_that_only_the_test_has_are_left_out_and_named(table):
    rows = (["cat", "train"], ["dog|cat", "train"], ["cat|eel", "test"])
    path = table(["label", "split"], *rows)
    source = sources.load(path, LABELS, validation_fraction=0.0)
    assert source.class_names == ("cat", "dog")
    assert source.test.labels().tolist() == [[1, 0]]
    [told] = source.ignored
    assert told.startswith("eel (first ") and "line 4, not in train" in told


@pytest.mark.parametrize(
    ("header", "rows", "told"),
    [
        (["label"], (["a|b|a"], ["b"]), "line 2 has the labels 'a|b|a', of which one"),
        (["label"], (["a||b"], ["b"]), "line 2 has the labels .* empty or there twice"),
        (["a", "b"], (["1", "0"], ["2", "1"]), "line 3 has '2' in the column 'a'"),
        (["a", "b"], (["1", "0"], ["", "1"]), "line 3 has '' in the column 'a'"),
        (["a", "a"], (["1", "0"], ["0", "1"]), "line 1 has 2 columns 'a': keep one"),
        (
            ["a|b", "c"],
            (["1", "0"], ["0", "1"]),
            "line 1 has the column 'a|b': a label",
        ),
        (["a", "b"], (["0", "0"], ["0", "0"]), "no photo for training has a label"),
    ],
)
def test_tables_of_labels_that_are_wrong_are_refused(header, rows, told, table):
    with pytest.raises(DataError, match=told.replace("|", r"\|")):
        loaded(table(header, *rows))


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e16", "3,5", "tall"])
def test_what_is_no_number_is_refused_with_its_line(text, table):
    path = table(["label"], ["1"], [text])
    with pytest.raises(DataError, match="line 3 has .*, where a number with a point"):
        loaded(path, NUMBER)


def test_numbers_are_read_as_they_are(table):
    path = table(["height"], ["1.5"], ["-2e3"], [" 0 "])
    options = DataOptions(task="number", columns=Columns(label="height"))
    names, values, _ = loaded(path, options)
    assert (names, values.dtype, values.tolist()) == (
        ("value",),
        np.float32,
        [[1.5], [-2000.0], [0.0]],
    )


def test_columns_without_1_to_train_on_are_refused_by_a_run_alone(table):
    rows = (["1", "0", "train"], ["1", "0", "train"], ["0", "1", "test"])
    path = table(["a", "b", "split"], *rows)
    with pytest.raises(DataError, match="no photo for training .* 1 in b:"):
        sources.load(path, LABELS, validation_fraction=0.0)
    # Photos to evaluate may lack what a model has learned.
    assert loaded(table(["a", "b"], ["1", "0"], ["1", "0"]))[0] == ("a",)


def test_numbers_that_are_all_the_same_are_refused(table):
    rows = (["3", "train"], ["3.0", "train"], ["4", "test"])
    path = table(["label", "split"], *rows)
    source = sources.load(path, NUMBER, validation_fraction=0.0)
    recipe = recipes.for_dataset(str(path)).override(task="number", loss="huber")
    with pytest.raises(RunError, match="all have the number 3:"):
        kind_of_task("number").of("run")(recipe).check_data(source)


@pytest.mark.parametrize(
    ("header", "rows", "task"),
    [
        (["label"], (["a"], ["b|c"]), "labels"),
        (["label"], (["a"], ["b"]), "classes"),
        (["label"], (["1"], ["0"]), "classes"),
        (["cat", "dog"], (["1", "0"], ["0", "1.0"]), "labels"),
        # One such column may be a class of its own, and 2 is neither 0 nor 1.
        (["cat"], (["1"], ["0"]), "classes"),
        (["cat", "dog"], (["1", "0"], ["0", "2"]), "classes"),
        # A column of labels comes before those of 0 and 1.
        (["label", "cat", "dog"], (["a", "1", "0"], ["b", "0", "1"]), "classes"),
        (["split", "cat", "dog"], (["train", "1", "0"], ["test", "0", "1"]), "labels"),
    ],
)
def test_a_table_shows_whether_photos_have_several_labels(header, rows, task, table):
    assert tasks.seen(table(header, *rows), USUAL) == task


def test_nothing_is_seen_of_what_is_no_table(tmp_path):
    (tmp_path / "empty.csv").touch()
    (tmp_path / "binary.csv").write_bytes(b"path,label\n\xff,a|b\n")
    for name in ("none.csv", "empty.csv", "binary.csv", ""):
        assert tasks.seen(str(tmp_path / name), USUAL) == "classes"
    assert tasks.seen("cifar10", USUAL) == "classes"


def test_texts_with_a_bar_are_classes_where_that_is_asked_for(table):
    path = table(["label"], ["a|b"], ["a"])
    assert loaded(path, DataOptions(task="classes"))[0] == ("a", "a|b")


def test_data_without_a_table_are_refused_by_the_task(tmp_path):
    for options in (LABELS, NUMBER):
        with pytest.raises(DataError, match="--task=.* reads labels from a table"):
            early_checks.check_task(str(tmp_path), options)


def test_corrections_of_classes_are_refused(table):
    options = DataOptions(task="number", relabel="labels.csv")
    with pytest.raises(DataError, match="--relabel gives photos a class each"):
        early_checks.check_task(table(["label"], ["1"], ["2"]), options)


def test_rare_labels_and_all_ranges_of_numbers_are_held_out_by_their_share():
    rng = np.random.default_rng(0)
    several = (rng.random((400, 3)) < [0.5, 0.1, 0.02]).astype(np.int8)
    kept, held = hold_out(labels.strata(several), 100)
    assert len(kept) == 300 and not {*kept} & {*held}
    # The rarest label decides, and photos without any are one kind more.
    is_rarest = several[:, 2] == 1
    assert abs(is_rarest[held].sum() - is_rarest.sum() / 4) < 1
    is_empty = ~several.any(axis=1)
    assert abs(is_empty[held].sum() - is_empty.sum() / 4) < 1

    numbers = rng.normal(size=(400, 1)).astype(np.float32)
    _, held = hold_out(labels.strata(numbers), 100)
    ranks = np.argsort(np.argsort(numbers[held, 0]))
    all_ranks = np.argsort(np.argsort(numbers[:, 0]))[held]
    # Every tenth of all numbers has a tenth of those held out.
    counts = np.bincount(all_ranks // 40, minlength=10)
    assert len(ranks) == 100 and counts.min() == counts.max() == 10


def test_a_choice_of_photos_has_its_share_of_rare_labels(table):
    rows = [["rare|all"]] * 2 + [["all"]] * 6
    _, values, source = loaded(table(["label"], *rows))
    chosen = limited(source.all, 4)
    assert chosen.labels().sum(axis=0).tolist() == [4, 1]
    assert values.sum(axis=0).tolist() == [8, 2]
