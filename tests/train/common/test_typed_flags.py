"""Flags in a command line as it was typed."""

import pytest

from train.common.typed_flags import flags_in, without_flags

COMMAND = "python -m train.finetune 'my photos' --bits 12 --verbose --extend --seed=3"


@pytest.mark.parametrize(
    ("names", "found", "others"),
    [
        # The value is the next word, but for a switch; -m is a flag of Python.
        (["bits"], ["--bits=12"], ["--verbose", "--extend", "--seed=3"]),
        (["extend", "seed"], ["--extend", "--seed=3"], ["--bits", "12", "--verbose"]),
        ([], [], ["--bits", "12", "--verbose", "--extend", "--seed=3"]),
    ],
)
def test_flags_are_told_from_other_words(names, found, others):
    assert flags_in(COMMAND, names) == found
    start = ["python", "-m", "train.finetune", "my photos"]
    assert without_flags(COMMAND, names) == [*start, *others]
