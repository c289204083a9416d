"""A study names the damaged report of one of its runs."""

import pytest

from train.common.errors import RunError
from train.inference.run_directory import RunDirectory
from train.study.runs import read_report


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"test_accuracy": 1, "parameters": "many"}', "[" * 99999]
)
def test_a_damaged_report_of_a_studys_run(text, tmp_path):
    directory = RunDirectory(tmp_path)
    directory.results.write_text(text)
    with pytest.raises(
        RunError, match="report.json is damaged.*give the command again"
    ):
        read_report(directory)
