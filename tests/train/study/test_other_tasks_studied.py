"""Studies compare accuracies: data of other tasks are refused by name."""

import labelled_photos
import pytest
from in_process import run_command


def test_several_labels_are_refused_by_name(tmp_path):
    table = labelled_photos.table(tmp_path, "labels")
    words = ("--study=learning_rates", f"--run_dir={tmp_path / 'runs'}")
    with pytest.raises(SystemExit, match="these are for --task=labels"):
        run_command("study", table, *words)
