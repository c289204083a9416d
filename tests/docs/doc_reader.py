"""What a reader of the pages has: a folder of photos and runs."""

import pathlib
import re
import shutil

import numpy as np
from PIL import Image
from released_files import save_release

import zoo

# Each split has so many: VTAB takes 800 of train and the first 200 of its last tenth.
TFDS_SIZES = {"train": 2000, "validation": 200, "test": 100}
TFDS_SPLITS = {"imagenet2012": ("train", "validation"), "eurosat/rgb": ("train",)}
# The runs that a reader has, by the flags of `keras-vit finetune`.
RUNS = {
    "runs/digits": ["--dataset=digits", "--steps=4", "--eval_every=4"],
    "runs/photos-ViT-Ti_16": [
        *("--dataset=photos/", "--smoke", "--image_size=224"),
        *("--steps=1", "--batch_size=2", "--micro_batches=1"),
    ],
}


def make_folder(folder):
    """Makes the photos of a reader, and the weights that the pages call WEIGHTS."""
    rows = ["path,label,split"]
    for split, count in (("train", 8), ("test", 3)):
        for label in ("daisy", "tulip"):
            for number in range(count):
                path = pathlib.Path("photos", split, label, f"{number}.jpg")
                save_image(folder / path, (96, 128), seed=len(rows))
                rows.append(f"{path},{label},{split}")
    for name in ("n01440764", "n11939491"):
        for split in ("train", "test"):
            path = folder / "imagenet_photos" / split / name / "1.jpg"
            save_image(path, (96, 128), seed=0)
    make_scenes(folder / "scenes")
    (folder / "photos.csv").write_text("\n".join(rows) + "\n")
    pairs = [row.rpartition(",")[0] for row in rows[1:]]
    labels = [f"{pair}|{('dry', 'wet')[n % 2]}" for n, pair in enumerate(pairs)]
    (folder / "labels.csv").write_text("\n".join(["path,labels", *labels, ""]))
    ages = [f"{pair.partition(',')[0]},{n}.5" for n, pair in enumerate(pairs)]
    (folder / "ages.csv").write_text("\n".join(["path,label", *ages, ""]))
    (folder / "plants.csv").write_text("\n".join(["file,species", *pairs, ""]))
    shutil.make_archive(str(folder / "photos"), "zip", folder, "photos")
    save_image(folder / "photo.jpg", (240, 320), seed=1)
    save_image(folder / "holiday" / "beach.jpg", (320, 240), seed=2)
    save_image(folder / "holiday" / "hut.jpg", (240, 320), seed=3)
    save_image(folder / "digit.png", (32, 32), seed=4)
    for label, seed in (("daisy", 5), ("tulip", 6)):
        save_image(folder / "garden" / label / "1.jpg", (240, 320), seed)
    # Downloaded from a gallery.
    (folder / "relabel.csv").write_text("path,label\nholiday/beach.jpg,tulip\n")
    (folder / "runs").mkdir()
    write_records(folder)
    card = zoo.get("vit-ti16/augreg-imagenet21k+imagenet2012")
    save_release(folder / "WEIGHTS", card, image_size=224)


def make_scenes(folder):
    """Makes photos with masks of their dark and bright places."""
    for number, split in enumerate(("train", "train", "train", "test")):
        path = folder / "images" / split / f"{number}.jpg"
        save_image(path, (96, 128), seed=number)
        mask = folder / "masks" / split / f"{number}.png"
        mask.parent.mkdir(parents=True, exist_ok=True)
        is_bright = np.asarray(Image.open(path).convert("L")) > 127
        Image.fromarray(is_bright.astype("uint8")).save(mask)
    (folder / "classes.csv").write_text("value,name\n0,dark\n1,bright\n")


def save_image(path, size, seed):
    """Writes a smooth random picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    small = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype="uint8")
    Image.fromarray(small).resize(size[::-1], Image.Resampling.BICUBIC).save(path)


def write_records(folder):
    """Writes the photos as TFRecord files."""
    import tensorflow as tf

    of = tf.train
    (folder / "records").mkdir()
    for split in ("train", "test"):
        examples = []
        for path in sorted((folder / "photos" / split).glob("*/*")):
            image = of.BytesList(value=[path.read_bytes()])
            label = of.Int64List(value=[int(path.parent.name == "tulip")])
            feature = {
                "image/encoded": of.Feature(bytes_list=image),
                "image/class/label": of.Feature(int64_list=label),
            }
            examples.append(of.Example(features=of.Features(feature=feature)))
        for shard in range(4):
            name = f"{split}-{shard:05}-of-00004.tfrecord"
            with tf.io.TFRecordWriter(str(folder / "records" / name)) as writer:
                for example in examples[shard::4]:
                    writer.write(example.SerializeToString())


def prepare_tfds(name, data_dir):
    """Prepares a data set of TensorFlow Datasets with generated images."""
    import tensorflow_datasets as tfds

    if re.split("[/:]", name)[0] not in tfds.list_builders(
        with_community_datasets=False
    ):
        return  # the command says so
    builder = tfds.builder(name, data_dir=data_dir)
    if builder.is_prepared():
        return
    features = builder.info.features
    rng = np.random.default_rng(0)
    splits = {
        split: [(number, example_of(features, number, rng)) for number in range(size)]
        for split, size in TFDS_SIZES.items()
        if split in TFDS_SPLITS.get(name.partition(":")[0], TFDS_SIZES)
    }
    tfds.dataset_builders.store_as_tfds_dataset(
        name=builder.name,
        version=str(builder.version),
        config=builder.builder_config,
        features=features,
        split_datasets=splits,
        data_dir=data_dir,
    )


def example_of(feature, number, rng):
    """Makes a value of a TFDS feature."""
    import tensorflow_datasets as tfds

    of = tfds.features
    if isinstance(feature, of.FeaturesDict):
        return {key: example_of(feature[key], number, rng) for key in feature}
    if isinstance(feature, of.Image):
        shape = [side or 32 for side in feature.shape]
        return rng.integers(0, 256, shape, dtype="uint8")
    if isinstance(feature, of.ClassLabel):
        return number % feature.num_classes
    if isinstance(feature, of.BBoxFeature):
        return of.BBox(0.1, 0.1, 0.9, 0.9)
    if isinstance(feature, of.Text):
        return f"{number}"
    if isinstance(feature, of.Sequence):
        return [example_of(feature.feature, number, rng) for _ in range(3)]
    return rng.random([side or 1 for side in feature.shape]).astype(feature.np_dtype)
