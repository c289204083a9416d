"""A study has its directory to itself."""

import os

import pytest

from train.common.errors import RunError
from train.inference.run_directory import RunDirectory
from train.study import studies


def test_a_study_is_alone_in_its_directory(tmp_path):
    recipe = studies.recipe_for("positions", "digits").smoke()
    with (
        RunDirectory(tmp_path).locked(),
        pytest.raises(RunError, match=f"process {os.getpid()} .*another --run_dir"),
    ):
        studies.run("positions", recipe, run_dir=tmp_path)
