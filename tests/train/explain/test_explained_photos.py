"""Photos as a report shows them: their names, bits, sizes, and what is refused."""

import dataclasses
import os
import pathlib
import shutil

import numpy as np
import PIL.Image
import pytest
import small_models
from explained import numbers, prepared

from train.common.errors import RunError
from train.data.sources.splits import DataError
from train.explain.photos import LONGER_SIDE, Photos
from train.explain.report import explain as write_report
from zoo.network.preparation import ModelBits

SHAPE = (*small_models.SIZE, 3)


def test_photos_as_they_are_shown(photos, whole_photos):
    found = Photos([photos])
    found.prepare_for(SHAPE, "squash", None)
    names = ("<i>&tall.jpg", "deep/grey.bmp", "deep/square.gif", "wide.png")
    assert found.names == names
    # Squashed for the model, whole and smaller for people.
    small, photo = found.chosen([0, 3])
    np.testing.assert_allclose(photo.image, prepared(photos / "wide.png"), atol=1e-5)
    assert photo.picture.shape == (213, LONGER_SIDE, 3)
    expected = np.asarray(PIL.Image.open(photos / "<i>&tall.jpg"), int)
    assert np.abs(small.picture - expected).mean() < 2
    # Cropped for both.
    found.prepare_for(SHAPE, "central crop", None)
    [photo] = found.chosen([3])
    assert photo.picture.shape == SHAPE
    pixels = (photo.image[0] + 1) * 127.5
    np.testing.assert_allclose(photo.picture, pixels, atol=0.50001)
    batches = list(found.batches(3))
    assert [len(batch) for batch in batches] == [3, 1]
    np.testing.assert_array_equal(batches[1], photo.image)


def test_another_image_size_of_cropped_photos(quick, model_file, photos, tmp_path):
    quick("heads")
    out, options = tmp_path / "out", {"image_size": 48, "central_crop": True}
    facts = write_report(model_file, [photos / "wide.png"], out, **options)
    assert facts["preparation"] == "central crop"
    assert facts["image_shape"] == [48, 48, 3] and facts["patches"] == [6, 6]
    assert numbers(out, "01-wide-heads")["maps"].shape == (2, 3, 6, 6)


def test_names_of_photos(photos, tmp_path, monkeypatch, whole_photos):
    link = tmp_path / "link.jpg"
    link.symlink_to(photos / "<i>&tall.jpg")
    long = tmp_path / "sub" / f"{'x' * 240}.png"
    long.parent.mkdir()
    shutil.copyfile(photos / "wide.png", long)
    found = Photos([link, long])
    assert found.names == ("link.jpg", f"sub/{long.name}")
    found.prepare_for((8, 8, 1), "squash", None)
    photo = dataclasses.replace(*found.chosen([1]), number=7)
    assert photo.file_name == f"07-{'x' * 60}" and photo.image.shape == (1, 8, 8, 1)
    assert dataclasses.replace(photo, name="<i>&tall.jpg").file_name == "07-i-tall"
    # The same file by two names is one.
    assert len(Photos([link, photos])) == 4
    monkeypatch.setenv("HOME", str(long.parent))
    assert Photos(["~"]).paths == Photos([f"~/{long.name}"]).paths == (long,)
    shutil.copyfile(photos / "wide.png", long.parent / os.fsdecode(b"\xff.png"))
    with pytest.raises(DataError, match="not UTF-8: rename it"):
        Photos([long.parent])


def test_photos_of_more_bits_are_refused_with_what_to_do(tmp_path):
    PIL.Image.fromarray(np.full((8, 8), 4096, "uint16")).save(tmp_path / "1.png")
    found = Photos([str(tmp_path)])
    for bits, remedy in ((12, "leave out bits=12"), (ModelBits(12), "pass bits=16")):
        found.prepare_for((8, 8, 3), "squash", bits)
        with pytest.raises(DataError, match=rf"1\.png has .* 4,096, .*: {remedy}"):
            list(found.batches(1))


@pytest.mark.parametrize(
    ("images", "told"),
    [
        (["gone.png"], r"There is no image gone\.png"),
        (["empty"], r"empty has no images, \*{\.jpg.*give another folder"),
        (["PHOTOS", "mine/broken.jpg"], r"broken\.jpg cannot be read as an image: dam"),
        (["mine"], r"broken\.jpg cannot be read"),
        (["PHOTOS"], r"no\.keras cannot be used"),
    ],
)
def test_photos_are_checked_before_the_model_is_loaded(
    images, told, photos, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "mine"):
        os.mkdir(name)
    start = (photos / "<i>&tall.jpg").read_bytes()[:200]
    pathlib.Path("mine/broken.jpg").write_bytes(start)
    images = [photos if one == "PHOTOS" else one for one in images]
    with pytest.raises(RunError, match=told):
        write_report("no.keras", images, "out")
    assert not os.path.exists("out")
