"""Tables of classes, and the numbers of values."""

import numpy as np
import pytest

from train.data.checking import DataError
from train.masks.classes import of_table, of_values


def table(folder, text, **settings):
    (folder / "classes.csv").write_text(text)
    return of_table(folder / "classes.csv", **settings)


def test_numbers_of_values_are_dense_and_in_the_order_of_the_table(tmp_path):
    classes = table(tmp_path, "value,name\n4000,road\n0,sky\n12,road\n7,void\n")
    assert classes.names == ("road", "sky")
    values = np.random.RandomState(0).choice([4000, 0, 12, 7, 255, 9], (8, 9))
    expected = {4000: 0, 12: 0, 0: 1, 7: 255, 255: 255, 9: -1}
    numbers = classes.numbers(values.astype("uint16"))
    assert numbers.dtype == np.int32
    np.testing.assert_array_equal(numbers, np.vectorize(expected.get)(values))


def test_without_a_table_the_values_are_the_classes():
    classes = of_values([10, 2, 255])
    assert classes.names == ("2", "10")
    assert classes.number_of == {2: 0, 10: 1, 255: 255}


IGNORED = {
    None: {0, 255},
    "car": {2, 255},
    "car, 9": {2, 9, 255},
    "none": set(),
    "": {255},
}


@pytest.mark.parametrize(("ignore", "expected"), IGNORED.items())
def test_what_does_not_count_is_named_or_usual(ignore, expected, tmp_path):
    rows = "value,name\n0,Unlabeled\n1,road\n2,car\n3,sky\n"
    number_of = table(tmp_path, rows, ignore=ignore).number_of
    assert {value for value, number in number_of.items() if number == 255} == expected


def test_255_is_a_class_where_the_table_has_it(tmp_path):
    classes = table(tmp_path, "value,name\n0,back\n255,front\n")
    assert classes.number_of == {0: 0, 255: 1}
    assert of_values([0, 255], ignore="none").names == ("0", "255")


def test_colours_may_stand_for_values(tmp_path):
    text = "name;R;G;B\nroad;128;64;128\nvoid;0;0;0\ncar;0;0;142\n"
    classes = table(tmp_path, text)
    assert classes.colours == {(128, 64, 128): 0, (0, 0, 0): 1, (0, 0, 142): 2}
    assert classes.number_of == {0: 0, 1: 255, 2: 1, 255: 255}
    text = "id,name,red,green,blue\n5,a,1,1,1\n6,b,,,\n"
    assert table(tmp_path, text).colours == {(1, 1, 1): 5}


REFUSED = {
    "": "line 1 has the columns none: expected the columns value,name",
    "value,r\n1,2\n": "line 1 has the columns value,r: expected",
    "name\nroad\n": "line 1 has the columns name: expected",
    "value,name,r,g\n": "expected the columns",
    "value,name\n1,road\n1,car\n": "line 3 has the value 1 of .*line 2 again",
    "value,name,r,g,b\n1,a,1,1,1\n2,b,1,1,1\n": r"3 has the colour \(1, 1, 1\) of",
    "value,name\n1,road\n-1,car\n": "line 3 has '-1' where a whole number from 0 to 6",
    "value,name,r,g,b\n1,road,1,2,256\n": "has '256' where .* to 255",
    "value,name\n1,road\n65536,car\n": "has '65536' where",
    "value,name\n1,\n": "line 2 has no name: fill it in",
    "value,name\n1\n": "line 2 has 1 values, too few",
    "value,name\n1,road\n255,void\n": "has less than two classes .road.",
    "value,name\n"
    + "".join(f"{i},c{i}\n" for i in range(300)): "has 300 classes, wher",
    'value,name\n1,"road\n': "classes.csv line",
}


@pytest.mark.parametrize(("text", "message"), REFUSED.items())
def test_unusable_tables_are_refused_with_the_line(text, message, tmp_path):
    with pytest.raises(DataError, match=message):
        table(tmp_path, text)


def test_a_missing_table_and_an_unknown_class_are_named(tmp_path):
    with pytest.raises(DataError, match="cannot read .*classes.csv: No such file"):
        of_table(tmp_path / "classes.csv")
    with pytest.raises(DataError, match='"bike" is neither a value nor a class .*road'):
        table(tmp_path, "value,name\n1,road\n2,car\n", ignore="bike")
    (tmp_path / "classes.csv").write_bytes(b"value,name\n1,\xff\n")
    with pytest.raises(DataError, match="not in UTF-8"):
        of_table(tmp_path / "classes.csv")
