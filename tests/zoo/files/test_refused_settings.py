"""Settings that would change what is computed, or that a field never has, are refused.

Each row of `refused_settings.txt` is one change of the settings of a sound model. What
is told names the file and the field, in two lines at most.
"""

import json
import pathlib
import shutil

import pytest

import zoo

TESTS = pathlib.Path(__file__).parents[2]
SHARED = TESTS.parent.parent / "shared" / "goldens_families"
FOLDERS = (TESTS / "cases", TESTS / "goldens" / "peers", SHARED)
HEADING, *LINES = (
    pathlib.Path(__file__).with_name("refused_settings.txt").read_text().splitlines()
)
# A number with more digits than a row should have.
HUGE = json.dumps({"num_heads": 10**400})
LINES.append(f"timm_label_names||model_args|{HUGE}||num_heads of 1000")


@pytest.mark.parametrize("line", LINES)
def test_a_change_of_settings_is_refused_by_name(line, tmp_path):
    model, file, table, change, without, told = line.split("|")
    source = next((at / model for at in FOLDERS if (at / model).is_dir()), None)
    if source is None:
        pytest.skip(f"{SHARED} is not there, which has {model}")
    folder = shutil.copytree(source, tmp_path / "model")
    path = folder / (file or "config.json")
    settings = json.loads(path.read_text())
    place = settings.setdefault(table, {}) if table else settings
    for field in without.split():
        del place[field]
    place |= json.loads(change)
    path.write_text(json.dumps(settings))
    with pytest.raises(zoo.CheckpointError) as error:
        zoo.read(folder)
    message = str(error.value)
    assert told in message
    assert len(message) < 700 and len(message.splitlines()) <= 2
    assert str(folder) in message
