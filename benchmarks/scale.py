"""Shows how our inference grows with the batch, the image and the model.

  python -m benchmarks.scale
  python -m benchmarks.scale --batches=1,8 --image_sizes=224 --models=ViT-Ti_16,ViT-S_16
  python -m benchmarks.scale --devices=1,2,4,8

One size is varied at a time, from --model at --image_size and --batch. Every point is
measured in a fresh process, so that its peak memory is its own: they do not take turns,
and small differences in speed say nothing. The exponent of a figure is that of the
power of the size that fits it best, 1 being proportional; memory is that above what
the libraries need before there is a model.

--devices  training of --model under JAX instead, with one --batch shared by the
           processor made into so many devices: they have its cores in common, so that
           only what sharing costs is seen, and the bytes that a step sums
"""

import dataclasses
import pathlib
import statistics
from typing import NamedTuple

from absl import flags

from benchmarks import command, devices, growth, model_flags, report
from benchmarks.contest import tell
from benchmarks.ours import INFERENCE
from benchmarks.process import Worker, WorkerError

flags.DEFINE_string("model", "ViT-Ti_16", "The model where another size varies.")
flags.DEFINE_integer("batch", 8, "The batch where another size varies.", lower_bound=1)
flags.DEFINE_integer(
    "image_size", 224, "Pixels a side where another size varies.", lower_bound=1
)
flags.DEFINE_list("batches", "1,2,4,8,16,32,64", "Batches, in images.")
flags.DEFINE_list("image_sizes", "224,384,512,768,1024", "Image sizes, pixels a side.")
flags.DEFINE_list(
    "models", "ViT-Ti_16,ViT-S_16,ViT-B_16,ViT-L_16", "Models, smallest first."
)
flags.DEFINE_list("devices", [], "Simulated devices to train on, such as 1,2,4,8.")
flags.DEFINE_integer("repeats", 5, "Steps of each point.", lower_bound=1)
command.define_out_dir()

HEADER = ["point", "ms p50", "images/s", "peak MB", "import MB"]


class Point(NamedTuple):
    """What one process measures."""

    model: str
    image_size: int
    batch: int

    def __str__(self):
        return f"{self.model} {self.image_size} b{self.batch}"


def main():
    """Measures all points and writes table, exponents and picture."""
    given = flags.FLAGS
    stem = f"scale-{given.model}-b{given.batch}"
    folder = pathlib.Path(given.out_dir)
    if given.devices:
        _train(folder, f"scale-devices-{given.model}-b{given.batch}")
        return
    axes = _axes(given)
    # All of them, before the first is measured.
    settings = {
        point: model_flags.describe(*point)
        for points in axes.values()
        for point in points
    }
    records = {
        point: _measure(point, setting, folder / stem)
        for point, setting in settings.items()
    }
    sizes = {
        "batch": lambda point: point.batch,
        "kilopixels": lambda point: point.image_size**2 / 1e3,
        "GFLOP an image": lambda point: settings[point].operations / point.batch / 1e9,
    }
    panels = [
        growth.panel(name, [(size(point), records[point]) for point in axes[name]])
        for name, size in sizes.items()
    ]
    failed = [record for record in records.values() if record["error"] is not None]
    notes = [growth.describe(panel) for panel in panels]
    notes += report.failures(failed)
    result = {
        **command.provenance(INFERENCE["graph"].imports),
        "points": list(records.values()),
        "growth": panels,
    }
    rows = [_row(record) for record in records.values()]
    command.publish(folder / f"{stem}.json", result, (HEADER, rows), notes)
    growth.draw(folder / f"{stem}.png", panels)
    print(f"picture {folder / f'{stem}.png'}")
    if failed:
        raise ValueError(f"{len(failed)} of {len(records)} points failed, see above.")


def _train(folder, stem):
    given = flags.FLAGS
    setting = model_flags.describe(given.model, given.image_size, given.batch)
    header = ["devices", "ms p50", "steps/s", "gradient MB", "all-reduced MB a step"]
    rows, records = [], []
    for count in _numbers("devices", given.devices):
        if given.batch % count:
            raise ValueError(
                f"--batch={given.batch} is no multiple of {count} devices: pass one."
            )
        tell(f"measuring {count} devices")
        counts = folder / stem / f"{count}.bytes"
        settings = {**setting.ours, "devices": count, "counts": str(counts)}
        one = dataclasses.replace(devices.JOB, settings=settings, ours=True)
        with Worker(one, folder / stem / f"{count}.log") as worker:
            try:
                worker.ready()
                seconds, _ = worker.run(given.repeats)
            except WorkerError as error:
                raise ValueError(f"{count} devices: {error}") from error
        median, sizes = statistics.median(seconds), counts.read_text().split()
        records.append({"devices": count, "seconds": seconds, "bytes": sizes})
        rows.append(
            [
                str(count),
                report.number(median * 1e3),
                report.number(1 / median),
                *(f"{int(size) / 1e6:,.2f}" for size in sizes),
            ]
        )
    result = {**command.provenance({"jax"}), "points": records}
    command.publish(folder / f"{stem}.json", result, (header, rows))


def _axes(given):
    start = Point(given.model, given.image_size, given.batch)
    return {
        "batch": [
            start._replace(batch=batch) for batch in _numbers("batches", given.batches)
        ],
        "kilopixels": [
            start._replace(image_size=side)
            for side in _numbers("image_sizes", given.image_sizes)
        ],
        "GFLOP an image": [start._replace(model=model) for model in given.models],
    }


def _numbers(flag, texts):
    if not all(text.strip().isdecimal() and int(text) for text in texts):
        raise ValueError(
            f"--{flag}={','.join(texts)}: pass positive numbers with commas between."
        )
    return [int(text) for text in texts]


def _measure(point, setting, log_dir):
    tell(f"measuring {point}")
    one = dataclasses.replace(INFERENCE["graph"], settings=setting.ours, ours=True)
    record = {"name": str(point), "batch": point.batch, "error": None}
    log = log_dir / f"{str(point).replace(' ', '-')}.log"
    with Worker(one, log) as worker:
        try:
            record |= worker.ready()
            record["seconds"], record["cpu_seconds"] = worker.run(flags.FLAGS.repeats)
            record["peak_bytes"] = worker.close()
        except WorkerError as error:
            return record | {"error": str(error)}
    record["p50"] = statistics.median(record["seconds"])
    record["images_per_second"] = point.batch / record["p50"]
    return record


def _row(record):
    if record["error"] is not None:
        return [record["name"], "failed", *[""] * (len(HEADER) - 2)]
    return [
        record["name"],
        report.number(record["p50"] * 1e3),
        report.number(record["images_per_second"]),
        report.megabytes(record["peak_bytes"]),
        report.megabytes(record["import_bytes"]),
    ]


if __name__ == "__main__":
    command.run(main)
