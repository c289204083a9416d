"""Messages for unknown flags and wrong values, with what was probably meant."""

import difflib
import re

from absl import flags

from train.common import flag_help
from zoo.common.safe_text import printable

# Other programs' names are keys, our flags values: the first that a command has is
# suggested. A note may follow a colon.
_MEANT = {
    "num_epochs n_epochs max_epochs nepochs num_train_epochs": "epochs",
    "time_limit max_time budget": "minutes",
    "max_steps num_steps train_steps total_steps iterations iters max_iter": "steps",
    "lr lr0 base_lr init_lr": "learning_rate",
    "bs b batch batchsize train_batch_size eval_batch_size "
    "per_device_train_batch_size per_device_eval_batch_size": "batch_size",
    "imgsz img img_size imagesize input_size resolution size": "image_size",
    "num_classes nb_classes n_classes classes num_labels": (
        "dataset: the classes are those of the data set"
    ),
    "output output_dir outdir out_dir out save_dir savedir project logdir log_dir "
    "checkpoint_dir run_name run_dir dest destination": "run_dir out_dir out output to",
    "data data_path dataset_name data_root train_dir train_data root folder": "dataset",
    "arch architecture backbone model_name model_name_or_path variant": "model",
    "checkpoint ckpt pretrained initial_checkpoint init_from weights_path": "weights",
    "resume continue": "extend: the same command again goes on with a run that was "
    "killed; to train a finished one for longer",
    "device devices gpu gpus num_gpus cuda tpu distributed": "strategy",
    "opt optim": "optimizer",
    "wd decay": "weight_decay",
    "sched scheduler lr_scheduler lr_schedule lr_scheduler_type": "schedule",
    "warmup warmup_epochs warmup_ratio num_warmup_steps warmup_t": "warmup_steps",
    "patience": "early_stopping",
    "drop dropout": "dropout_rate",
    "drop_path drop_path_rate droppath": "stochastic_depth_rate",
    "smoothing": "label_smoothing",
    "ema model_ema ema_decay model_ema_decay": "average_decay",
    "layer_wise_lr_decay llrd": "layer_decay",
    "amp fp16 bf16 half dtype mixed_precision": "precision",
    "hflip fliplr horizontal_flip": "flip",
    "aa auto_augment autoaugment randaug randaugment": "rand_augment",
    "reprob erasing": "random_erasing",
    "freeze freeze_backbone linear_probe": "frozen",
    "lora lora_r": "lora_rank",
    "accumulate grad_accum grad_accum_steps gradient_accumulation_steps": (
        "micro_batches"
    ),
    "grad_checkpointing gradient_checkpointing": "remat",
    "val_split validation_split val_fraction": "validation_fraction",
    "max_train_samples num_examples limit": "train_examples images",
    "save_steps save_freq save_period": "checkpoint_every",
    "eval_steps eval_freq val_interval val_freq": "eval_every",
    "random_state random_seed": "seed",
    "cfg config_file yaml": "config",
    "topk top_k top5 k": "top",
    "threshold conf confidence min_confidence score_threshold": (
        "top: each answer has its probability, in a file of --out too, to choose by"
    ),
    "threshold tolerance atol rtol": "min_agreement",
    "quantize quantization int8 quant": "format precision",
    "formats to_format include export_format": "format",
    "dynamic dynamic_axes": "dynamic_batch",
    "num_threads nthreads workers num_workers jobs": "threads",
    "force exist_ok overwrite": "overwrite replace",
    "num_shots n_shots k_shot": "shots",
    "target_class class_name label": "class",
    "photos photo source image input": "images",
}
# These are places that commands write to, and what copies files to URLs.
_WRITTEN = {"run_dir", "out_dir", "out", "json", "output", "cache"}
_WRITTEN |= {"features", "sort_into", "gallery"}
_COPYING = {"s3": "aws s3 sync", "gs": "gcloud storage rsync", "hf": "hf upload"}
# These are the largest integer of 32 bits, as for seeds, and about that of float32.
_MOST_COUNT, _MOST_NUMBER = 2**32 - 1, 3.4e38


def explained(error: flags.Error, typed: str) -> str:
    """Returns what to do about a `flags.Error`; `typed` is the command as typed."""
    text = str(error)
    if isinstance(error, flags.UnrecognizedFlagError):
        return _unknown(error.flagname, typed)
    if text.startswith("flags "):  # A validator of several begins with their values.
        return text.partition(": ")[2]
    wrong = re.match(r"flag --(\w+)=(.*?): ", text, re.DOTALL)
    if wrong and text.endswith("must have a value other than None."):
        return f"--{wrong[1]} is missing. {_help(wrong[1], typed)}"
    if bare := re.fullmatch(r"Missing value for flag --?(\w+)", text):
        return f"--{bare[1]}=VALUE needs its value. {_help(bare[1], typed)}"
    if wrong:
        parser = flags.FLAGS[wrong[1]].parser
        wanted = parser.syntactic_help or "true or false"
        if isinstance(parser, flags.EnumParser):
            wanted = f"one of {'|'.join(parser.enum_values)}"
        return f"--{wrong[1]}={printable(wrong[2], 80)} must be {wanted}."
    return text


def _help(name, typed):
    """Returns what a flag takes, in the words of --help, and where the others are."""
    text = " ".join(flags.FLAGS[name].help.split())
    return f"{text}\n{typed} --help shows examples and flags."


def _unknown(name, typed):
    """Returns which flag is meant by one that the command does not have."""
    known = {flag: f"did you mean --{flag}?" for flag in flag_help.of_command()}
    plain = name.replace("-", "_").lower()
    start = f"There is no flag --{printable(name, 80)}"
    if plain in known:
        return f"{start}: write --{plain}."
    others = {}
    for names, meant in _MEANT.items():
        flags_meant, _, note = meant.partition(": ")
        if present := [flag for flag in flags_meant.split() if flag in known]:
            use = f"use --{present[0]}{note and f' ({note})'}."
            others |= {other: use for other in names.split() if other not in others}
    if plain in others:
        return f"{start}: {others[plain]}"
    meant = others | known
    near = difflib.get_close_matches(plain, meant, n=1)
    return f"{start}: {meant[near[0]] if near else f'{typed} --help lists all.'}"


def is_count(text: str) -> bool:
    """Returns whether a text is a whole number from 1 up that something can count to.

    Example:
        >>> is_count("5"), is_count("0"), is_count("1" + 5000 * "0")
        (True, False, False)
    """
    return bool(re.fullmatch(r"[0-9]{1,10}", text)) and 0 < int(text) <= _MOST_COUNT


def check_numbers() -> None:
    """Raises a `flags.Error` for numbers that are not finite or too large."""
    for name, flag in flag_help.of_command().items():
        value = flag.value
        if isinstance(value, int) and abs(value) > _MOST_COUNT:
            raise flags.Error(f"--{name} must be at most {_MOST_COUNT:,}.")
        # NaN compares as false.
        if isinstance(value, float) and not abs(value) <= _MOST_NUMBER:
            raise flags.Error(
                f"--{name}={value} must be finite, and at most {_MOST_NUMBER:g}."
            )


def check_places() -> None:
    """Raises a `flags.Error` for places to write to that are URLs."""
    for name, flag in flag_help.of_command().items():
        value = flag.value
        if name in _WRITTEN and isinstance(value, str) and "://" in value:
            copying = _COPYING.get(value.partition("://")[0], "the storage's program")
            raise flags.Error(
                f"--{name}={printable(value, 200)} is a URL, and files are written to "
                "disks alone: pass a path, and copy what is there afterwards by "
                f"{copying}."
            )
