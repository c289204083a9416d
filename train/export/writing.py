"""A model written as what one name in `FORMATS` stands for."""

from train.common.errors import RunError
from train.common.files import file_names
from train.export.formats import FORMATS
from zoo.store import digest


def write(name, model, folder, tried, *, min_agreement, dynamic_batch, uint8):
    """Writes a model in one format.

    Args:
        name: str, in `FORMATS`.
        model: a model of `keras_vit` that computes in float32.
        folder: `pathlib.Path` of the exports.
        tried: `train.export.trial.Trial`.
        min_agreement: float, what quantised exports should reach at the price of size
            and speed, where there are images to calibrate; None for the smallest file.
        dynamic_batch: bool, of TFLite.
        uint8: bool, of full int8.

    Returns:
        Dict of what is known of the files: "bytes", "files", a list of dicts with
        "path", "bytes" and "sha256"; and of TFLite "matrices", how many of them are
        computed how, and "aim", the `min_agreement` that some may be in float16 for.

    Raises:
        RunError: the format has no room for this model, or it cannot be written.
    """
    export, before = FORMATS[name], file_names(folder)
    path, named = folder / export.file, {"class_names": tried.class_names}
    known = {}
    try:
        if export.kind == "saved_model":
            from train.inference.saved_model import write_saved_model

            write_saved_model(model, path, **named)
        elif export.kind == "tflite":
            from train.export.tflite import write_tflite

            quantised = export.is_quantised and tried.calibration is not None
            known["aim"] = min_agreement if quantised else None
            known["matrices"] = write_tflite(
                model,
                path,
                precision=export.precision,
                calibration=tried.calibration if quantised else None,
                min_agreement=known["aim"],
                dynamic_batch=dynamic_batch,
                uint8=uint8 and export.precision == "int8",
                **named,
            )
        else:
            from train.export.onnx import write_onnx

            write_onnx(model, path, precision=export.precision, **named)
    except ValueError as error:
        raise RunError(f"{name} cannot be made of this model: {error}") from error
    files = [
        {
            "path": file,
            "bytes": (folder / file).stat().st_size,
            "sha256": digest(folder / file, "sha256"),
        }
        for file in sorted(file_names(folder) - before)
    ]
    return {"bytes": sum(file["bytes"] for file in files), "files": files} | known
