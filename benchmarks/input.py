"""Compares reading of photos with bare decoders and other libraries, in one run.

  python -m benchmarks.input --image_size=224 --rounds=7
  python -m benchmarks.input --images=photos/ --peers=crop,pillow
  python -m benchmarks.input --list
  python -m benchmarks.input --overlap --batch=16
  python -m benchmarks.input --profile=/tmp/trace --batch=16

A step is a pass over a folder of JPEGs, the start of reading included: 2,000 made
photos of 500 x 375 pixels, unless --images names others. All use every core, and take
turns; the ratio of two is the median over the rounds. CPU seconds are those of a
contender's own process: the workers of torchvision's loader are not in them. Compare
evaluation, which reads whole images, with "bare decode_jpeg".

--ours     training (random crops, flipped), evaluation (whole images), or all
--peers    crop (TensorFlow's decoder alone, on windows as in training), crop-resize,
           decode (whole images), pillow, keras, torchvision, or all; --peers= for none
--list     finding --files image files in folders, beside a bare os.walk and others,
           instead of reading photos
--overlap  a few steps of train.engine.loop.take_steps, on batches that are read
           meanwhile and on one that is in memory; tells how long training waited
"""

import dataclasses
import pathlib
import sys
import tempfile

from absl import flags

from benchmarks import command, input_jobs, listing, overlap, photos, report
from benchmarks.contest import choose, contest, tell
from benchmarks.profiling import profile

command.define_flags(rounds=7)
flags.DEFINE_list("ours", "all", "What of keras_vit to measure, or all.")
flags.DEFINE_list("peers", "all", "What to compare with, or all.")
flags.DEFINE_string("images", None, "Folder of JPEGs to read instead of made ones.")
flags.DEFINE_integer(
    "count", 2000, "Photos a pass, a multiple of --batch.", lower_bound=1
)
flags.DEFINE_integer("image_size", 224, "Pixels a side.", lower_bound=1)
flags.DEFINE_integer("batch", 50, "Images a batch.", lower_bound=1)
flags.DEFINE_bool("list", False, "Measure how long files are listed, instead.")
flags.DEFINE_integer("files", 100_000, "Files that --list lists.", lower_bound=1)
flags.DEFINE_bool("overlap", False, "Measure how long training waits, instead.")
flags.DEFINE_string("model", "ViT-Ti_16", "The variant that is trained.")
flags.DEFINE_integer("fit_steps", 5, "Training steps a turn.", lower_bound=1)
flags.DEFINE_string(
    "profile", None, "Folder for a trace of training, taken instead of measuring."
)


def main():
    """Runs what the flags describe."""
    given = flags.FLAGS
    if given.count % given.batch:
        raise ValueError(
            f"--count={given.count} is no multiple of --batch={given.batch}: pass "
            "both so that it is."
        )
    with tempfile.TemporaryDirectory(prefix="keras_vit_photos_") as folder:
        if given.list:
            _list(folder)
        elif given.overlap or given.profile:
            _train(folder)
        else:
            _read(folder)


def _list(folder):
    count = flags.FLAGS.files
    tell(f"filling a folder with {count:,} files")
    listing.fill(folder, count)
    fields = {"settings": {"folder": folder}, "items": count}
    ours = listing.OURS["sources"]
    contenders = [
        dataclasses.replace(choice, ours=choice is ours, **fields)
        for choice in (ours, *listing.PEERS.values())
    ]
    reference = listing.PEERS["walk"].name
    command.compare(
        f"input-list-{count}", contenders, reference=reference, calibrate=False
    )


def _fill(folder):
    given = flags.FLAGS
    tell(f"filling a folder with {given.count:,} photos")
    photos.fill(folder, given.count, given.images)


def _settings(folder):
    given = flags.FLAGS
    return {"folder": folder, "image_size": given.image_size, "batch": given.batch}


def _read(folder):
    given = flags.FLAGS
    # A pass is long: the first of all may count, the median is not moved by it.
    fields = {"settings": _settings(folder), "items": given.count, "warm_up": 0}
    contenders = [
        dataclasses.replace(choice, ours=True, **fields)
        for choice in choose(input_jobs.OURS, given.ours, "ours")
    ]
    contenders += [
        dataclasses.replace(choice, **fields)
        for choice in choose(input_jobs.PEERS, given.peers, "peers")
    ]
    _fill(folder)
    command.compare(
        f"input-{given.image_size}",
        contenders,
        reference=input_jobs.PEERS["crop"].name,
    )


def _train(folder):
    import keras_vit

    given = flags.FLAGS
    if given.model not in keras_vit.VARIANTS:
        raise ValueError(
            f"--model={given.model}: choose one of {', '.join(keras_vit.VARIANTS)}."
        )
    config = keras_vit.VARIANTS[given.model]
    config.grid_size(given.image_size, name=given.model)
    _fill(folder)
    waits = pathlib.Path(folder) / "waits"
    settings = {
        **_settings(folder),
        "sizes": dataclasses.asdict(config),
        "waits": str(waits),
    }
    if given.profile:
        profile(overlap.contenders(settings, steps=1)[0], given.profile)
        return
    contenders = overlap.contenders(settings, given.fit_steps)
    stem = f"input-overlap-{given.model}-{given.image_size}-b{given.batch}"
    out_dir = pathlib.Path(given.out_dir)
    result = contest(
        contenders,
        rounds=given.rounds,
        repeats=given.repeats or 1,
        log_dir=out_dir / stem,
        reference=contenders[1].name,
    )
    problem = command.failure(result)
    waited = [] if problem else overlap.waited(waits)
    result = {**command.provenance({"tensorflow"}), **result, "waited": waited}
    notes = [*report.notes(result), *overlap.notes(waited)]
    command.publish(out_dir / f"{stem}.json", result, report.table(result), notes)
    if problem:
        sys.exit(f"error: {problem}")


if __name__ == "__main__":
    command.run(main)
