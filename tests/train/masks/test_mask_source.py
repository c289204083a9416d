"""Folders of photos with masks, from their layout to the batches of a run."""

import shutil

import numpy as np
import pytest
from made_masks import lay_out_masks, noise
from PIL import Image

from train.data import early_checks, registry
from train.data.checking import DataError
from train.data.options import DataOptions
from train.data.pipeline import evaluation_batches, training_batches
from train.data.sources import load
from train.masks.source import photos_and_masks
from zoo import photos

PARTED = ("images/{part}/{name}.jpg", "masks/{part}/{name}.png")
LAYOUTS = {
    "images first": PARTED,
    "parts first": ("{part}/images/{name}.jpg", "{part}/masks/{name}.png"),
    "masks beside": ("{part}/{name}.jpg", "masks/{part}/{name}.png"),
}
ROWS = "value,name\n0,void\n4,road\n9,car\n"


def loaded(folder, fraction=0.0, **settings):
    lines = []
    source = load(
        str(folder), validation_fraction=fraction, log=lines.append, **settings
    )
    return source, lines


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_photos_have_the_masks_of_their_names(layout, tmp_path):
    parts = {"train": 5, "val": 2, "test": 3}
    masks = lay_out_masks(tmp_path, parts, layout, values=(0, 4, 9), table=ROWS)
    assert registry.kind_of(str(tmp_path)).name == "masks"
    source, lines = loaded(tmp_path, 0.2)
    assert source.class_names == ("road", "car") and lines == []
    numbers = {0: 255, 4: 0, 9: 1}
    for part, split in source.splits().items():
        assert split.num_examples == parts["val" if part == "validation" else part]
        batches = evaluation_batches(split, image_size=(12, 16), batch_size=3)
        found = np.concatenate([labels for _, labels in batches.as_numpy_iterator()])
        expected = [
            masks[f"{name.rpartition('/')[2].removesuffix('.jpg')}"]
            for name in split.names()
        ]
        np.testing.assert_array_equal(found, np.vectorize(numbers.get)(expected))


def test_an_archive_has_masks_as_its_folder_has(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    lay_out_masks(
        tmp_path / "a" / "scenes", {"train": 3, "test": 2}, PARTED, table=ROWS
    )
    lay_out_masks(tmp_path / "a" / "scenes", {"train": 3, "test": 2}, PARTED, (4, 9))
    file = shutil.make_archive(str(tmp_path / "scenes"), "zip", tmp_path / "a")
    source, _ = loaded(file)
    assert source.class_names == ("road", "car") and source.train.num_examples == 3
    assert source.test.name == f"{file} test"


def test_photos_and_masks_are_read_in_their_own_size(tmp_path):
    masks = lay_out_masks(tmp_path, {"train": 5, "test": 1}, PARTED)
    split = loaded(tmp_path)[0].train
    read = list(photos_and_masks(split))
    assert [name for name, _, _ in read] == split.names()
    for number, (name, photo, mask) in enumerate(read):
        np.testing.assert_array_equal(photo, photos.decode(name))
        np.testing.assert_array_equal(mask, masks[f"train{number}"])


def test_a_folder_without_parts_has_a_fifth_held_out(tmp_path):
    layout = ("images/{name}.jpg", "masks/{name}.png")
    lay_out_masks(tmp_path, {"": 20}, layout)
    source, _ = loaded(tmp_path, 0.25)
    sizes = {part: split.num_examples for part, split in source.splits().items()}
    assert sizes == {"train": 12, "validation": 4, "test": 4}
    names = [name for split in source.splits().values() for name in split.names()]
    assert len({*names}) == 20
    # Neighbours, as of one video, would all be on one side.
    assert source.test.names() != sorted(names)[::5]
    whole, _ = loaded(tmp_path, None)
    assert whole.all.names() == sorted(names)
    assert whole.class_names == source.class_names == ("0", "1", "2")


def test_batches_to_train_on_have_masks(tmp_path):
    lay_out_masks(tmp_path, {"train": 6, "test": 1}, PARTED, table=None)
    source, _ = loaded(tmp_path, 0.5)
    assert source.validation.num_examples == 3
    batches = training_batches(
        source.train, image_size=(8, 8), batch_size=3, seed=1, crop="gentle"
    )
    images, masks = next(batches.take(1).as_numpy_iterator())
    assert images.shape == (3, 8, 8, 3) and masks.shape == (3, 8, 8)
    assert {*np.unique(masks)} == {0, 1, 2}


@pytest.mark.parametrize("turn", [1, 3, 5, 6])
def test_masks_fit_windows_of_photos_that_exif_turns(turn, tmp_path):
    rows, columns = np.indices((40, 60))
    photo = np.stack([4 * rows, 4 * columns, 0 * rows], axis=-1).astype("uint8")
    # Upright again after what the orientation does.
    stored = {
        1: photo,
        3: photo[::-1, ::-1],
        5: photo.swapaxes(0, 1),
        6: np.rot90(photo),
    }
    exif = Image.Exif()
    exif[274] = turn
    lay_out_masks(tmp_path, {"train": 4, "test": 1}, PARTED)
    blocks = (rows // 10 * 6 + columns // 10).astype("uint8")
    for path in tmp_path.glob("images/*/*.jpg"):
        settings = {"quality": 100, "subsampling": 0, "exif": exif}
        Image.fromarray(stored[turn]).save(path, **settings)
    for path in tmp_path.glob("masks/*/*.png"):
        Image.fromarray(blocks).save(path)
    split = loaded(tmp_path)[0].train
    batches = training_batches(split, image_size=(33, 21), batch_size=8, seed=2)
    images, masks = next(batches.take(1).as_numpy_iterator())
    places = (images[..., :2] * 127.5 + 127.5) / 4
    # A JPEG is a level or two off, and near the edge of a block either may be nearest.
    is_inside = (np.abs((places + 0.5) % 10 - 5) < 3.5).all(axis=-1)
    expected = places[..., 0] // 10 * 6 + places[..., 1] // 10
    assert is_inside.mean() > 0.3
    np.testing.assert_array_equal(masks[is_inside], expected[is_inside])


def test_photos_that_are_left_out_take_their_masks_along(tmp_path):
    masks = lay_out_masks(tmp_path, {"train": 4, "test": 2}, PARTED)
    (tmp_path / "images/train/train1.jpg").write_bytes(b"no photo")
    (tmp_path / "without.csv").write_text("path\nimages/train/train2.jpg\n")
    without = str(tmp_path / "without.csv")
    source, _ = loaded(tmp_path, skip_corrupt=True, without=without)
    found = [mask for _, _, mask in photos_and_masks(source.train)]
    np.testing.assert_array_equal(found, [masks["train0"], masks["train3"]])


def test_what_is_not_used_is_named(tmp_path):
    lay_out_masks(tmp_path, {"train": 3, "test": 2}, PARTED)
    for name in ("images/train/extra.jpg", "images/val/1.jpg", "masks/train/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(noise(3, 3)).save(tmp_path / name, "JPEG")
    (tmp_path / "readme.md").touch()
    rows = "value,name\n0,a\n1,b\n2,c\n3,d\n"
    (tmp_path / "classes.csv").write_text(rows)
    source, lines = loaded(tmp_path)
    names = (
        "images/train/extra.jpg",
        "readme.md",
        "images/val/",
        "masks/train/notes.txt",
    )
    assert source.ignored == names
    expected = f"{tmp_path}: 4 entries are ignored, no photos with a mask: images/train"
    assert lines[0].startswith(expected) and len(lines) == 2
    assert lines[1].endswith("1 of the 4 class occurs in no mask to train on: d")
    _, lines = loaded(tmp_path, ignore="d,1")
    assert len(lines) == 1


def spoiled(name, values):
    def spoil(folder):
        path = folder / name
        path.unlink(missing_ok=True)
        if values is not None:
            Image.fromarray(np.asarray(values, "uint8")).save(path)

    return spoil


REFUSED = {
    "value": (spoiled("masks/test/test0.png", [[7] * 16] * 12), r"lacks: 7 \(192 pix"),
    "size": (
        spoiled("masks/train/train1.png", [[0] * 16] * 11),
        "has 16 x 11 pixels, a",
    ),
    "no photo": (
        spoiled("images/train/train1.jpg", None),
        "1 of the 3 masks of .*train have no photo .*train1.png; name each mask like",
    ),
    "jpeg": (
        spoiled("masks/test/test9.jpg", [[0]]),
        "masks that are no PNG: test9.jpg",
    ),
    "two photos": (
        spoiled("images/train/train1.bmp", [[0]]),
        "images/train has both train1.bmp and train1.jpg: a mask belongs to one",
    ),
}


@pytest.mark.parametrize(("spoil", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_refused_by_name(spoil, message, tmp_path):
    lay_out_masks(
        tmp_path, {"train": 3, "test": 2}, PARTED, table=ROWS, values=(0, 4, 9)
    )
    spoil(tmp_path)
    with pytest.raises(DataError, match=message):
        loaded(tmp_path)


def test_a_mask_that_changed_since_is_refused_as_batches_are_made(tmp_path):
    from train.data.pipeline import explained

    lay_out_masks(
        tmp_path, {"train": 3, "test": 2}, PARTED, table=ROWS, values=(0, 4, 9)
    )
    split = loaded(tmp_path)[0].test
    spoiled("masks/test/test1.png", [[7] * 16] * 12)(tmp_path)
    batches = evaluation_batches(split, image_size=(4, 4), batch_size=2)
    with pytest.raises(DataError, match="test1.png has other values than when"):
        list(explained(batches, split))


def test_commands_that_learn_no_masks_refuse_them_early(tmp_path):
    lay_out_masks(tmp_path, {"train": 3, "test": 2}, PARTED)
    with pytest.raises(DataError, match="has masks, .* --task=masks learns"):
        early_checks.check(str(tmp_path), DataOptions())


def test_classes_called_images_and_masks_stay_classes(tmp_path):
    for part in ("train", "test"):
        for name in ("images", "masks"):
            (tmp_path / part / name).mkdir(parents=True)
            for number in range(2):
                path = tmp_path / part / name / f"{number}.png"
                Image.fromarray(noise(4, 4, 3)).save(path)
    assert registry.kind_of(str(tmp_path)).name == "folder"
    assert loaded(tmp_path)[0].class_names == ("images", "masks")
    # Grays of other names than the photos are no masks of these.
    for part in ("train", "test"):
        for number in range(2):
            path = tmp_path / part / "masks" / f"{number}.png"
            Image.fromarray(noise(4, 4)).save(path)
            path.rename(path.with_stem(f"gray{number}"))
    assert registry.kind_of(str(tmp_path)).name == "folder"
    for part in ("train", "test"):
        (tmp_path / part / "masks" / "gray0.png").rename(
            tmp_path / part / "masks" / "0.png"
        )
    assert registry.kind_of(str(tmp_path)).name == "masks"
