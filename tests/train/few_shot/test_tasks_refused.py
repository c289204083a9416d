"""A probe of classes refuses data of other tasks by name."""

import labelled_photos
import pytest
from in_process import run_command


def test_several_labels_are_refused_by_name(tmp_path):
    table = labelled_photos.table(tmp_path, "labels")
    with pytest.raises(SystemExit, match="has labels of --task=labels, and this takes"):
        run_command("few_shot", "vit-ti16/augreg-imagenet21k", table)
