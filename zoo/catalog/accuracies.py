"""Published accuracies of the released files, in percent."""

from __future__ import annotations

from zoo.catalog.model_card import Accuracy

README = "google-research/vision_transformer README"
TUNED = "top1 after fine-tuning"
_PAPER = "ViT paper, Table 5"
_OWN_RUN = f"{_PAPER} (the paper's own run; this file was not measured)"
_TIMM = "timm results-imagenet.csv, bicubic evaluation of this file"
_TIMM_REAL = "timm results-imagenet-real.csv, bicubic evaluation of this file"
_AUGREG = "AugReg paper, Table 5, on the full data set"

# ViT paper, Table 5: pre-trained on ImageNet-21k, fine-tuned at 384.
_PAPER_SETS = (
    "cifar10",
    "cifar100",
    "imagenet2012",
    "imagenet2012_real",
    "oxford_flowers102",
    "oxford_iiit_pet",
)
_PAPER_TUNED = {
    "ViT-B_16": (98.95, 91.67, 83.97, 88.35, 99.38, 94.43),
    "ViT-B_32": (98.79, 91.97, 81.28, 86.63, 99.11, 93.02),
    "ViT-L_16": (99.16, 93.44, 85.15, 88.40, 99.61, 94.73),
    "ViT-L_32": (99.13, 93.04, 80.99, 85.65, 99.19, 93.09),
    "ViT-H_14": (99.27, 93.82, 85.13, 88.70, 99.51, 94.82),
}
# README: the released files fine-tuned at 384, with dropout 0.0 and with 0.1.
_README_SETS = ("cifar10", "cifar100", "imagenet2012")
_README_TUNED = {
    "ViT-B_16": {0.0: (99.02, 92.06, 84.53), 0.1: (98.76, 91.92, 84.12)},
    "ViT-B_32": {0.0: (98.88, 92.31, 81.66), 0.1: (98.75, 92.05, 81.31)},
    "ViT-L_16": {0.0: (99.13, 92.91, 84.47), 0.1: (99.14, 93.22, 85.05)},
    "ViT-L_32": {0.0: (99.06, 93.29, 81.89), 0.1: (99.09, 93.34, 81.13)},
    "R50+ViT-B_16": {0.0: (98.72, 90.88, 83.72), 0.1: (98.94, 92.30, 85.08)},
}
_README_224 = {"ViT-B_16": 81.2, "ViT-L_16": 82.7}
# timm's evaluation at 384 of the fine-tuned files: ImageNet and ReaL.
_TIMM_384 = {
    "ViT-B_16": (84.21, 88.40),
    "ViT-L_32": (81.51, 85.91),
    "R50+ViT-B_16": (84.99, 88.80),
}
_TIMM_SAM = {"ViT-B_16": 80.25, "ViT-B_32": 73.70}
# AugReg paper: Table 3, ImageNet at 224; Table 5, CIFAR-100 and Pets.
_AUGREG_TUNED = {
    "ViT-Ti_16": (73.75, 87.2, 91.0),
    "ViT-S_16": (80.46, 90.8, 93.2),
    "ViT-S_32": (73.47, 89.7, 92.0),
    "ViT-B_16": (83.96, 93.2, 94.7),
    "ViT-B_32": (79.13, 92.3, 92.8),
    "ViT-L_16": (83.98, 94.1, 95.0),
    "R+ViT-Ti_16": (69.69, 85.3, 90.3),
    "R26+ViT-S_32": (80.81, 90.9, 94.1),
    "R50+ViT-L_32": (82.74, 93.9, 94.9),
}


def published(variant: str, release: str) -> tuple[Accuracy, ...]:
    """Returns the accuracies of a released file, the best evidence first."""
    of_release = {
        "imagenet21k": _of_original,
        "imagenet21k+imagenet2012": _of_fine_tuned,
        "imagenet21k+imagenet2012-224": _of_fine_tuned_at_224,
        "sam": _of_sam,
        "augreg-imagenet21k": _of_augreg,
    }
    return tuple(of_release[release](variant)) if release in of_release else ()


def _of_original(variant):
    for dropout, values in _README_TUNED.get(variant, {}).items():
        for data_set, value in zip(_README_SETS, values, strict=True):
            source = f"{README}, dropout {dropout}"
            yield Accuracy(data_set, TUNED, value, 384, source)
    if variant in _PAPER_TUNED:
        for data_set, value in zip(_PAPER_SETS, _PAPER_TUNED[variant], strict=True):
            yield Accuracy(data_set, TUNED, value, 384, _PAPER)
    if variant == "ViT-L_16":
        yield Accuracy("vtab1k", f"mean {TUNED}", 72.72, 384, "ViT paper")


def _of_fine_tuned(variant):
    if variant in _TIMM_384:
        top1, real = _TIMM_384[variant]
        yield Accuracy("imagenet2012", "top1", top1, 384, _TIMM)
        yield Accuracy("imagenet2012_real", "top1", real, 384, _TIMM_REAL)
    if variant in _PAPER_TUNED:
        row = dict(zip(_PAPER_SETS, _PAPER_TUNED[variant], strict=True))
        for data_set in ("imagenet2012", "imagenet2012_real"):
            yield Accuracy(data_set, "top1", row[data_set], 384, _OWN_RUN)


def _of_fine_tuned_at_224(variant):
    yield Accuracy("imagenet2012", "top1", _README_224[variant], 224, README)


def _of_sam(variant):
    if variant in _TIMM_SAM:
        yield Accuracy("imagenet2012", "top1", _TIMM_SAM[variant], 224, _TIMM)


def _of_augreg(variant):
    if variant in _AUGREG_TUNED:
        top1, cifar100, pets = _AUGREG_TUNED[variant]
        yield Accuracy("imagenet2012", TUNED, top1, 224, "AugReg paper, Table 3")
        yield Accuracy("cifar100", TUNED, cifar100, None, _AUGREG)
        yield Accuracy("oxford_iiit_pet", TUNED, pets, None, _AUGREG)
