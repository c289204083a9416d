"""Checks of arguments, input and dtype policy for functions that make models."""

import contextlib
import difflib
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from zoo.catalog.similar import similar_variants
from zoo.common.safe_text import brief
from zoo.network import pair, positive_int
from zoo.network.head import CLASS_LISTS, checked_names

# The `image_size` of a model for images of any size.
ANY_SIZE = (None, None)

# Arguments of Keras's own models and of other libraries -> what to write here.
_ELSEWHERE = {
    "input_shape": "pass image_size=(height, width), and channels= if not 3",
    "input_tensor": "build the model without it and call it on the tensor",
    "num_classes": "pass classes=",
    "pooling": "the features are always averaged over the image, so leave it out",
}


def takes_own_arguments(function: Callable) -> Callable:
    """Makes a function name the argument to pass instead of one it does not have."""
    own = inspect.signature(function).parameters
    takes_others = any(one.kind is one.VAR_KEYWORD for one in own.values())

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs.keys() - own.keys():
            near = difflib.get_close_matches(name, own, n=1)
            own_names = f"its arguments are {', '.join(own)}."
            remedy = f"did you mean {near[0]}?" if near else own_names
            if name in _ELSEWHERE:
                remedy = f"{_ELSEWHERE[name]}."
            elif takes_others:
                continue
            raise TypeError(f"{checked.__name__}() takes no {name}: {remedy}")
        return function(*args, **kwargs)

    return checked


def network_of(config: object, kind: type, variants: dict) -> tuple:
    """Returns the config of a kind that `config` is or names, and the name or None."""
    names = ", ".join(variants)
    if isinstance(config, kind):
        return config, None
    if not isinstance(config, str):
        raise ValueError(
            f"config must be a {kind.__name__} or the name of a variant, got "
            f"{brief(config)}: pass one of {names}."
        )
    if config not in variants:
        near = similar_variants(config, variants)
        hint = f"did you mean {' or '.join(near)}? Choose" if near else "choose"
        raise ValueError(
            f"Unknown variant {config!r}: {hint} one of {names}, or pass a "
            f"{kind.__name__}."
        )
    return variants[config], config


def classes_of_head(
    classes: int | None, new_head: bool, source: Any
) -> tuple[int, bool]:
    """Returns how many classes a head has, and whether it is new beside a file's.

    `source` is None, or weights with their path and the number of their classes.
    """
    if source is None:
        return classes or 1000, new_head
    if classes is None and source.classes is None:
        raise ValueError(
            f"{source.path} has no head: pass classes=K for a new one, or "
            "include_top=False."
        )
    classes = classes or source.classes
    return classes, new_head or classes != source.classes


def check_without_head(**arguments: object) -> None:
    """Raises a `ValueError` if an argument of the head is neither None nor False."""
    for name, value in arguments.items():
        if value is not None and value is not False:
            raise ValueError(
                f"{name}={value!r} needs the head: pass include_top=True, or leave "
                f"{name} out."
            )


def size_of(
    image_size: int | tuple[int | None, int | None],
) -> tuple[int | None, int | None]:
    """Returns (height, width), or `ANY_SIZE`."""
    if isinstance(image_size, (tuple, list)) and tuple(image_size) == ANY_SIZE:
        return ANY_SIZE
    return pair(image_size, "image_size")


def number_of_classes(
    classes: int | None, class_names: Sequence[str] | str | None
) -> int | None:
    """Returns the classes of a head, by default as many as it has names, or None."""
    if classes is not None:
        hint = "; names are class_names=, a model without head has include_top=False"
        return positive_int(classes, "classes", hint)
    if class_names is None:
        return None
    names = checked_names(class_names)
    return CLASS_LISTS[names] if isinstance(names, str) else len(names)


@contextlib.contextmanager
def dtype_policy(dtype: str | keras.DTypePolicy | None) -> Iterator[None]:
    """Context with another global dtype policy, one of floats; None for no change."""
    before = keras.config.dtype_policy()
    try:
        policy = before if dtype is None else keras.dtype_policies.get(dtype)
        fits = policy is before or (
            "float" in policy.compute_dtype and policy.quantization_mode is None
        )
    except (ValueError, TypeError, AttributeError):
        fits = False
    if not fits:
        raise ValueError(
            'dtype must be a policy of floats such as "float32", "mixed_bfloat16" or '
            f'"bfloat16", got {dtype!r}; int8 weights are keras_vit.quantize_weights.'
        )
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def head_dtype() -> str:
    """Returns the dtype of logits: float32, or float64 where the policy is."""
    compute_dtype = keras.config.dtype_policy().compute_dtype
    return "float64" if compute_dtype == "float64" else "float32"


def images_input(
    image_size: tuple[int | None, int | None], channels: int
) -> keras.KerasTensor:
    """Returns the input of a model, in Keras's float dtype, or float64."""
    dtype = "float64" if head_dtype() == "float64" else keras.config.floatx()
    return keras.Input((*image_size, channels), dtype=dtype, name="images")
