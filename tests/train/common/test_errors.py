from train.common.errors import first_line


def test_the_first_line_of_an_error_or_else_its_name():
    assert (
        first_line(ValueError("no such\x1b layer\nFull config")) == r"no such\x1b layer"
    )
    assert first_line(KeyError()) == "KeyError"
