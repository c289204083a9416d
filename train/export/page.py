"""The page of exported models: how they did, how to load them."""

from train.export.formats import FORMATS
from train.export.runtimes import BATCH
from train.reports import markdown


def table(results):
    """Returns the table of the exports, the model itself first, the refused ones last.

    Args:
        results: dict, see `train.export.exporting.export`.

    Returns:
        str, Markdown.
    """
    rows = [*results["exports"], *filter(_is_measured, results["refused"])]
    top_1 = results["agreement_of"] == "top-1"
    header = [
        "Export",
        "MB",
        "Largest error",
        "Top-1 agreement (95% interval)" if top_1 else "Mean cosine",
        "ms at batch 1",
        f"ms at batch {BATCH}",
        "Peak memory, MB",
    ]
    cells = [
        [
            f"{row['name']} (refused)" if "why" in row else row["name"],
            _short(row["bytes"] / 1e6),
            _error(row),
            agreement(results, row["agreement"], row if index else None),
            _milliseconds(row, 1),
            _milliseconds(row, BATCH),
            f"{row['peak_bytes'] / 1e6:,.0f}",
        ]
        for index, row in enumerate(rows)
    ]
    if "accuracy" in rows[0]:
        header.insert(4, "Accuracy (95% interval)")
        for row, line in zip(rows, cells, strict=True):
            line.insert(
                4,
                f"{row['accuracy']:.2%} ({row['accuracy_low']:.2%} to "
                f"{row['accuracy_high']:.2%})",
            )
    return markdown.table(header, cells)


def agreement(results, value, row=None):
    """Returns how much an export agrees, as text: a share, or a cosine.

    Args:
        results: dict, see `train.export.exporting.export`.
        value: float.
        row: dict of the export whose 95% interval is given too, None for none.
    """
    if results["agreement_of"] != "top-1":
        return f"{value:.6f}"
    if row is None:
        return f"{value:.2%}"
    low, high = (row[f"agreement_{end}"] for end in ("low", "high"))
    return f"{value:.2%} ({low:.2%} to {high:.2%})"


def matrices(row):
    """Returns how many matrices of a quantised export are computed how, a sentence.

    Args:
        row: dict of the export, see `train.export.exporting.export`.
    """
    kinds = row["matrices"]
    text = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    text = f"The matrices of {row['name']}: {text}"
    if row["aim"] is not None:
        kept = f"{kinds.get('float16', 0)} of {sum(kinds.values())}"
        text += f"; {kept} stay in float16 for --min_agreement={row['aim']:g}"
    return f"{text}."


def export_page(results, class_names):
    """Returns the page of an export.

    Args:
        results: dict, see `train.export.exporting.export`.
        class_names: sequence of str in the order of the head, None where unknown.

    Returns:
        str, Markdown.
    """
    names = [row["name"] for row in results["exports"][1:]]
    parts = [
        f"# {markdown.escape(results['model'])}, exported",
        markdown.code(results["command"]) if results["command"] else "",
        table(results),
        _how_measured(results),
        *(
            f"**{row['name']} is not here:** {markdown.escape(row['why'])}"
            for row in results["refused"]
        ),
        _caution(results),
        "## Use them",
        _interface(results, class_names),
        *_usage(results, names),
        _NAMING if results["head"] and class_names else "",
        "## Files",
        markdown.table(
            ("File", "Bytes", "SHA-256"),
            [
                (file["path"], f"{file['bytes']:,}", file["sha256"])
                for row in results["exports"][1:]
                for file in row["files"]
            ],
        ),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _is_measured(row):
    return "agreement" in row


def _error(row):
    if row["largest_error"] is None:
        return f"{row['not_finite']:,} not finite"
    return f"{row['largest_error']:.2g}"


def _milliseconds(row, batch):
    text = _short(1000 * row["latency"][str(batch)])
    return f"{text} (one by one)" if row["one_by_one"] and batch > 1 else text


def _short(number):
    return f"{number:,.1f}" if number >= 10 else f"{number:.2g}"


def _how_measured(results):
    images = results["images"]
    count = f"{images['count']:,}"
    if images["data_set"] is None:
        on = (
            f"{count} generated images, coloured clouds, for want of a data set: how "
            "the exports do on real images is not known"
        )
    else:
        on = f"{count} images of {images['split']} ({images['preparation']})"
    if results["agreement_of"] == "top-1":
        what = (
            "Agreement is the share of the images to which an export gives the class "
            "that the Keras model does."
        )
    else:
        what = (
            "Agreement is the mean cosine between what an export and the Keras model "
            "answer to an image: 1 is the same direction."
        )
    parts = [
        f"Each was run in its own runtime on {on}. {what} The largest error is that of "
        "all the numbers they answer, of which the largest is "
        f"{results['largest_answer']:.3g}."
    ]
    if calibration := images.get("calibration"):
        parts.append(
            f"{calibration['count']:,} other images, of {calibration['split']}, "
            "calibrated what is quantised."
        )
    for row in results["exports"]:
        if row["name"] in FORMATS and FORMATS[row["name"]].is_quantised:
            parts.append(matrices(row))
    if "no_accuracy" in images:
        parts.append(f"No accuracy is known: {images['no_accuracy']}")
    versions = dict.fromkeys(row["version"] for row in results["exports"])
    parts.append(
        f"Latency is the median of repeated calls with {results['threads']} threads on "
        f"{results['cpu']}; what takes images one by one is called for each of "
        f"{BATCH}. Peak memory is that of a process which loads the model and runs it, "
        f"the runtime included. Runtimes: {', '.join(versions)}."
    )
    return markdown.escape(" ".join(parts))


def _caution(results):
    if not results["all_alike"]:
        return None
    return (
        "**The model answers the same to every image**, as one does that is not "
        "trained: the agreement says nothing."
    )


def _interface(results, class_names):
    height, width, channels = results["input_shape"]
    said = (
        f"All take float32 images (batch, {height}, {width}, {channels}) in [-1, 1] "
        "and give float32 "
    )
    if results["head"]:
        said += f"logits of {results['output_shape'][0]:,} classes"
        said += ", whose names `class_names.txt` has." if class_names else "."
    else:
        said += f"features {tuple(results['output_shape'])} of each."
    mode, axis = ("RGB", "") if channels == 3 else ("L", "[..., None]")
    return f"""{said} In this folder, with a photo of yours as `photo.jpg`:

```python
import numpy as np
from PIL import Image, ImageOps

photo = ImageOps.exif_transpose(Image.open("photo.jpg")).convert("{mode}")
photo = photo.resize(({width}, {height}))
images = (np.asarray(photo, "float32"){axis} / 127.5 - 1)[None]
```

Pillow smooths a photo that it shrinks, the commands of `train` do not: the answers
differ by more than the exports do, the accuracy hardly."""


def _usage(results, names):
    for kind in dict.fromkeys(FORMATS[name].kind for name in names):
        of_kind = [name for name in names if FORMATS[name].kind == kind]
        snippet = _SNIPPETS[kind].replace("FILE", FORMATS[of_kind[0]].file)
        if kind == "tflite" and results["dynamic_batch"]:
            snippet = snippet.replace(_ALLOCATE, _RESIZE + _ALLOCATE)
        yield snippet
        if kind == "saved_model":
            yield _saved_model_too(results)
        if kind == "tflite" and not results["dynamic_batch"]:
            yield "This takes one image at a time; `--dynamic_batch` lifts that."
        if len(of_kind) > 1:
            others = ", ".join(f"`{FORMATS[name].file}`" for name in of_kind[1:])
            yield f"Likewise {others}."
        if "tflite-int8" in of_kind and results["uint8"]:
            yield _UINT8


def _saved_model_too(results):
    given = "logits and probabilities" if results["head"] else "features"
    return (
        "TensorFlow Serving takes `saved_model` as `--model_base_path`. The signature "
        "`serve_bytes` takes JPEG or PNG files of any size, "
        '`image_bytes=tf.constant([open("photo.jpg", "rb").read()])`, and gives '
        f"{given}. Called itself, `loaded(images)`, the model takes what TensorFlow "
        "Hub prescribes: images in [0, 1]."
    )


_SNIPPETS = {
    "saved_model": """```python
import tensorflow as tf

loaded = tf.saved_model.load("FILE")
[answers] = loaded.signatures["serving_default"](tf.constant(images)).values()
```""",
    "tflite": """```python
from ai_edge_litert.interpreter import Interpreter

interpreter = Interpreter("FILE")
[taken], [given] = interpreter.get_input_details(), interpreter.get_output_details()
interpreter.allocate_tensors()
interpreter.set_tensor(taken["index"], images)
interpreter.invoke()
answers = interpreter.get_tensor(given["index"])
```""",
    "onnx": """```python
import onnxruntime

session = onnxruntime.InferenceSession("FILE")
[answers] = session.run(None, {session.get_inputs()[0].name: images})
```""",
}
_NAMING = """The answer's name:

```python
names = open("class_names.txt").read().splitlines()
print(names[answers[0].argmax()])
```"""
_ALLOCATE = "interpreter.allocate_tensors()\n"
_RESIZE = 'interpreter.resize_tensor_input(taken["index"], images.shape)\n'
_UINT8 = """`tflite-int8` takes the pixels themselves, `np.asarray(photo)[None]`, and
gives uint8: with `scale, zero = given["quantization"]` the logits are
`scale * (answers.astype("float32") - zero)`."""
