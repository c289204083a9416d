"""Writes the files that tests/test_earlier_files.py reads.

Run it in a checkout of the version whose files must stay readable; the files here are
those of commit 1a6d305 (November 2026):

    git worktree add ../earlier 1a6d305 && cd ../earlier
    PYTHONPATH=.:tests python ../keras_vit/tests/earlier/write_files.py FOLDER
"""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np

import keras_vit

HERE = pathlib.Path(__file__).parent
SIZE = 16
CONFIG = keras_vit.ViTConfig(
    hidden_size=8, num_layers=2, num_heads=2, mlp_dim=12, patch_size=8
)
HYBRID = dataclasses.replace(CONFIG, patch_size=2, resnet_stages=(1,), resnet_width=32)
SMOKE = ["--dataset=digits", "--smoke", "--batch_size=8", "--train_examples=64"]
RUNS = {
    "finetune": [*SMOKE, "--dropout_rate=0.1", "--average_decay=0.9", "--mixup=0.2"],
    "masked_patches": SMOKE,
}
# Ends the process as Ctrl-C does after its fifth step; checkpoints are of the fourth
# and of this one.
INTERRUPT = """
import os, runpy, signal, sys
import train.callbacks
call = train.callbacks.StepLog.__call__
def interrupted(log, step, metrics):
    call(log, step, metrics)
    if step == 5:
        os.kill(os.getpid(), signal.SIGINT)
train.callbacks.StepLog.__call__ = interrupted
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def made(config=CONFIG, **arguments):
    """Returns a model of three classes whose variables are all random."""
    arguments = {"image_size": SIZE, "classes": 3, **arguments}
    if not arguments.get("include_top", True):
        del arguments["classes"]
    return randomized(keras_vit.VisionTransformer(config, **arguments))


def randomized(model):
    numbers = np.random.default_rng(0)
    for variable in model.weights:
        if variable.dtype in ("int8", "uint32"):
            continue
        values = numbers.normal(0.3, 0.4, variable.shape)
        variable.assign(np.abs(values) if "variance" in variable.path else values)
    return model


def at_stem(kind):
    return dataclasses.replace(CONFIG, position_embedding=kind)


def quantized():
    model = made()
    keras_vit.quantize_weights(model)
    return model


def frozen():
    model = made()
    for layer in model.layers[:-1]:
        layer.trainable = False
    model.get_layer("encoder_block_1").mlp.trainable = True
    return model


def lora():
    from train.tuning import choose_trainable

    model = made()
    choose_trainable(model, frozen=False, lora_rank=2)
    return randomized(model)


def masked():
    from keras_vit.layers.mask_patches import MaskPatches

    model = made(pooling=None, include_top=False)
    images = keras.Input((SIZE, SIZE, 3))
    chosen = keras.Input((4,), dtype="bool")
    tokens = model.get_layer("embedding")(images)
    tokens = MaskPatches(name="mask")(tokens, chosen)
    return randomized(keras.Model([images, chosen], tokens))


def wrapped():
    images = keras.Input((SIZE, SIZE, 3))
    body = made(pooling="gap", include_top=False)
    return randomized(keras.Model(images, keras.layers.Dense(3)(body(images))))


def composed():
    images = keras.Input((SIZE, SIZE, 3))
    tokens = keras_vit.PatchEncoder(8, 8)(images)
    tokens = keras_vit.AddPositionEmbs2D((2, 2))(tokens)
    tokens = keras_vit.ClassToken()(tokens)
    tokens = keras_vit.TransformerBlock(2, 12, stochastic_depth_rate=0.1)(tokens)
    return randomized(
        keras.Model(
            images, keras_vit.ClassTokenPooling()(keras_vit.LayerNorm()(tokens))
        )
    )


def bit():
    """BiT, in steps of an eighth: they compress to a fifth."""
    from keras_vit.models.bit_resnet import BiTConfig

    model = keras_vit.BiTResNet(BiTConfig((1,)), image_size=SIZE, classes=3)
    randomized(model)
    model.set_weights([np.round(8 * weight) / 8 for weight in model.get_weights()])
    return model


MODELS = {
    "plain": made,
    "hybrid": lambda: made(HYBRID, image_size=32),
    "hybrid_timm": lambda: made(
        dataclasses.replace(
            HYBRID,
            activation="gelu",
            layer_norm_epsilon=1e-5,
            resnet_padding="symmetric",
            resnet_epsilons="timm",
        ),
        image_size=32,
    ),
    "rows_and_columns": lambda: made(at_stem("2d")),
    "relative": lambda: made(at_stem("relative")),
    "every_layer": lambda: made(
        dataclasses.replace(CONFIG, position_embedding_at="every_layer")
    ),
    "shared": lambda: made(
        dataclasses.replace(CONFIG, position_embedding_at="every_layer_shared")
    ),
    "no_positions": lambda: made(at_stem("none")),
    "gap_pre_logits": lambda: made(pooling="gap", representation_size=6),
    "gray_half": lambda: made(channels=1, dtype="mixed_float16"),
    "regularized": lambda: made(
        remat=True, dropout_rate=0.1, stochastic_depth_rate=0.1
    ),
    "int8": quantized,
    "frozen": frozen,
    "lora": lora,
    "masked": masked,
    "wrapped": wrapped,
    "composed": composed,
    "bit": bit,
}


def inputs_of(model):
    """Returns random inputs of a model, two examples each."""
    numbers = np.random.default_rng(1)
    return [
        numbers.random((2, *tensor.shape[1:])) < 0.5
        if tensor.dtype == "bool"
        else numbers.uniform(-1, 1, (2, *tensor.shape[1:])).astype("float32")
        for tensor in model.inputs
    ]


def write_models(folder):
    expected = {}
    for name, make in MODELS.items():
        keras.utils.clear_session()
        model = make()
        model.save(folder / f"{name}.keras")
        outputs = model(inputs_of(model), training=False)
        expected[name] = keras.ops.convert_to_numpy(outputs).astype("float32")
        expected[f"{name} trainable"] = len(model.trainable_weights)
    np.savez_compressed(folder / "expected.npz", **expected)


def write_runs(folder):
    """Writes interrupted runs, and the weights that the same runs have at their end."""
    for command, flags in RUNS.items():
        arguments = [f"train.{command}", *flags]
        whole, half = folder / "whole", folder / command
        subprocess.run(
            [sys.executable, "-m", *arguments, f"--run_dir={whole}"], check=True
        )
        subprocess.run(
            [sys.executable, "-c", INTERRUPT, *arguments, f"--run_dir={half}"]
        )
        if command == "finetune":
            whole.rename(folder / "finished")
        else:
            (whole / "weights.npz").rename(folder / f"{command}.npz")
            shutil.rmtree(whole)


def write_exports(folder):
    run = str(folder / "finished")
    python = [sys.executable, "-m"]
    subprocess.run(
        [*python, "train.publish", run, f"--to={folder}/registry"],
        check=True,
    )
    subprocess.run(
        [*python, "train.export", run, "--format=tflite", f"--out={folder}/exported"],
        check=True,
    )


def pack(folder):
    """Puts what the tests need into one small archive, files.zip."""
    leave_out = {"tensorboard", "step-00000004.npz", ".lock"}
    with zipfile.ZipFile(
        HERE / "files.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9
    ) as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if name.parts[:2] == ("finished", "checkpoints") or path.suffix == ".png":
                continue
            if path.is_file() and not leave_out & {*name.parts}:
                archive.write(path, name)


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1]).absolute()
    target.mkdir(parents=True)
    write_models(target)
    write_runs(target)
    write_exports(target)
    pack(target)
