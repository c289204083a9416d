"""What tests of settings share: models whose settings or arrays are changed."""

import json
import shutil

import pytest
from peer_files import folder_of

import zoo


@pytest.fixture
def changed(tmp_path):
    """Returns a function that copies a model with other settings.

    The function takes the model's name, the changes ({field: value}, `...` takes one
    out), the name of the table that they are in, and of the file.
    """

    def make(name, changes, table=None, file="config.json"):
        folder = tmp_path / name
        if not folder.exists():
            shutil.copytree(folder_of(name), folder)
        path = folder / file
        settings = json.loads(path.read_text()) if path.exists() else {}
        place = settings.setdefault(table, {}) if table else settings
        place |= changes
        for field in [field for field in place if place[field] is ...]:
            del place[field]
        path.write_text(json.dumps(settings))
        return folder

    return make


@pytest.fixture
def refused():
    """Returns a function that reads a folder and checks what is said against it."""

    def read(folder, *told):
        with pytest.raises(zoo.CheckpointError) as error:
            zoo.read(folder)
        message = str(error.value)
        assert len(message) < 700 and len(message.splitlines()) <= 2
        assert "damaged" not in message
        for part in (str(folder), *told):
            assert part in message
        return message

    return read
