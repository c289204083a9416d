"""Base classes of the layers: configurations, places of tokens, frozen parts."""

import inspect
import math
from collections.abc import Iterator
from typing import Any

import keras

from zoo.network import finite_float

# A tensor of the backend, or one of Keras in a graph.
Tensor = Any
Shape = tuple[int | None, ...]
_OF_KERAS = {*inspect.signature(keras.layers.Layer.__init__).parameters, "input_shape"}


class Layer(keras.layers.Layer):
    """A layer configured by its constructor's arguments, which keeps its input's shape.

    Every argument is an attribute of the same name.
    """

    def __init__(self, **kwargs):
        if unknown := sorted(kwargs.keys() - _OF_KERAS):
            known = ", ".join([*self._argument_names(), "name and dtype"])
            raise ValueError(
                f"{type(self).__name__} has no argument {', '.join(unknown)}: pass "
                f"only {known}, or what keras.layers.Layer takes besides."
            )
        super().__init__(**kwargs)

    def compute_output_shape(self, input_shape: Shape, *other_shapes: Shape) -> tuple:
        return input_shape

    def get_config(self) -> dict:
        arguments = {
            name: _serialized(getattr(self, name)) for name in self._argument_names()
        }
        return {**super().get_config(), **arguments}

    def add_gamma_and_beta(
        self, channels: int, gamma: str | keras.initializers.Initializer = "ones"
    ) -> None:
        """Makes the variables of a norm; `gamma` is the initializer of the first."""
        for name, initializer in (("gamma", gamma), ("beta", "zeros")):
            weight = self.add_weight(
                name=name,
                shape=(channels,),
                initializer=initializer,
                # Autocast would round it to half precision before it is used.
                autocast=False,
            )
            setattr(self, name, weight)

    def _positive(self, name, value):
        """Returns the value of an argument as a float; refuses it by name."""
        return finite_float(value, f"{self.name}: {name}", positive=True)

    def _argument_names(self):
        for kind in type(self).__mro__:
            # A class derived from ours may have other arguments, which it adds itself.
            is_ours = kind.__module__.partition(".")[0] == "keras_vit"
            if is_ours and "__init__" in vars(kind):
                return [
                    name
                    for name, parameter in inspect.signature(kind).parameters.items()
                    if parameter.kind is not parameter.VAR_KEYWORD
                ]
        return []


def _serialized(value):
    """Returns the config of a layer, which is new where it is read, or the value."""
    if not isinstance(value, keras.layers.Layer):
        return value
    config = keras.saving.serialize_keras_object(value)
    # With it Keras would build the layer before the one that it is a part of.
    config.pop("build_config", None)
    return config


def prefix_tokens(
    num_tokens: int,
    grid_size: tuple[int, int],
    name: str,
    remedy: str,
    num_registers: int = 0,
) -> int:
    """Returns how many of a sequence's tokens come before those of the patches.

    These are registers and at most one class token. Raises a `ValueError` of `name`
    that ends in the remedy if there is no such number.
    """
    others = num_tokens - math.prod(grid_size)
    if not 0 <= others - num_registers <= 1:
        rows, columns = grid_size
        registers = f"{num_registers} registers and " if num_registers else ""
        raise ValueError(
            f"{name} has a grid of {rows}x{columns} patches and {registers}at most one "
            f"class token, got {num_tokens} tokens: {remedy}."
        )
    return others


def check_heads(layer: keras.layers.Layer, hidden_size: int) -> None:
    """Raises a ValueError if a layer's `num_heads` does not divide a token's size."""
    if hidden_size % layer.num_heads:
        raise ValueError(
            f"{layer.name}: num_heads={layer.num_heads} does not divide the size of a "
            f"token, {hidden_size}."
        )


def check_tokens(layer: keras.layers.Layer, shape: Shape) -> None:
    """Raises a ValueError if the inputs of a layer are not tokens."""
    if len(shape) != 3:
        raise ValueError(
            f"{layer.name} takes tokens (batch, tokens, hidden_size), got shape "
            f"{tuple(shape)}: PatchEncoder makes tokens of images."
        )


class Placed(Layer):
    """A layer that depends on the places of its tokens.

    `grid_size`, (rows, columns) of the patches or None, is set by the constructor;
    `length`, the number of tokens, and `num_prefix_tokens`, how many of them come
    before the patches of a grid, by `find_places`. Called with tokens of images of any
    size, a layer is also given `grid`, the output of `PatchGrid`.
    """

    grid_size: tuple[int, int] | None = None
    length: int | None = None
    num_prefix_tokens: int | None = None
    num_registers = 0

    def find_places(self, tokens_shape: Shape) -> None:
        """Finds out where the tokens of the layer's own grid are."""
        self.length = tokens_shape[1]
        if self.length is None and None not in (self.grid_size, self.num_prefix_tokens):
            self.length = self.num_prefix_tokens + math.prod(self.grid_size)
        if self.length is None:
            raise ValueError(
                f"{self.name} needs a known number of tokens, got shape "
                f"{tuple(tokens_shape)}: give the images a fixed height and width, or "
                "position embeddings their grid_size and num_prefix_tokens."
            )
        if self.grid_size is not None:
            self.num_prefix_tokens = prefix_tokens(
                self.length,
                self.grid_size,
                self.name,
                "pass the grid of these tokens",
                self.num_registers,
            )

    def check_places(self, tokens: Tensor, grid: Tensor | None = None) -> None:
        """Raises ValueError if tokens are not as many as those it was built for.

        With a grid they may be, if the layer has one to resize from.
        """
        if grid is not None:
            if self.grid_size is None:
                raise ValueError(
                    f"{self.name} is called with a grid, which needs a grid_size to "
                    "resize from, and has none: leave the grid out, or pass grid_size "
                    "to a layer that takes it."
                )
            return
        if isinstance(tokens, keras.KerasTensor) and tokens.shape[1] is None:
            raise ValueError(
                f"{self.name} does not know the grid of tokens of any number: pass "
                "grid, the output of PatchGrid."
            )
        if self.length is not None and tokens.shape[1] not in (None, self.length):
            raise ValueError(
                f"{self.name} has positions for {self.length} tokens, got "
                f"{tokens.shape[1]}: resize the images to the model's size, or build "
                "the model with their image_size."
            )

    def resized(
        self, grid_size: tuple[int, int] | None, method: str | None = None
    ) -> keras.layers.Layer:
        """Returns the same layer of another grid, None for any; not built."""
        config = self.get_config()
        if grid_size is not None:
            config["grid_size"] = grid_size
        if method is not None and "resizing" in config:
            config["resizing"] = method
        return type(self).from_config(config)


class Composite(Layer):
    """A layer of layers, as frozen after it is saved, loaded or cloned as before.

    Keras hands the flag `trainable` to the layers inside when it is set, but those
    that `build` makes come later, and a configuration has the outer flag alone. So
    `trainable_parts`, a dict of the paths of parts such as `"attention.query"` to
    their flags, owners first, names in a configuration those whose flag differs from
    their owner's, and `build` ends in `settle`. `part_policies`, a dict of such paths
    to dtype policies, does the same for those that `keras.Model.quantize` changed.
    """

    # The names of the attributes that are layers with weights; some may be missing.
    parts: tuple[str, ...] = ()
    # A part's class -> the one made instead: int8 layers replace some.
    part_classes = {}

    def __init__(self, trainable_parts=None, part_policies=None, **kwargs):
        super().__init__(**kwargs)
        self._trainable_parts = trainable_parts or {}
        self._part_policies = part_policies or {}

    def policy_of_part(self, name: str) -> keras.DTypePolicy:
        """Returns the dtype policy of a part that is made or handed over."""
        return keras.dtype_policies.get(
            self._part_policies.get(name, self.dtype_policy)
        )

    def add_part(
        self,
        kind: type,
        name: str,
        *args: Any,
        input_shape: Shape | None = None,
        **kwargs: Any,
    ) -> None:
        """Makes a part, `self.<name>`, built if its shape is known or no matter."""
        kind = self.part_classes.get(kind, kind)
        policy = self.policy_of_part(name)
        if inner := _inside(self._part_policies, f"{name}."):
            kwargs["part_policies"] = inner
        part = kind(*args, dtype=policy, name=name, **kwargs)
        # Keras quantises no layer that has an unbuilt one in it, weights or not.
        if input_shape is not None or kind.build is keras.layers.Layer.build:
            part.build(input_shape)
        setattr(self, name, part)

    def all_parts(self) -> Iterator:
        """Yields (path, owner, part) of the parts and theirs, owners first."""
        for name in self.parts:
            part = getattr(self, name, None)
            if part is None:
                continue
            yield name, self, part
            if isinstance(part, Composite):
                for path, owner, inner in part.all_parts():
                    yield f"{name}.{path}", owner, inner

    def settle(self) -> None:
        """Freezes parts made since the layer was frozen; `build` ends with it."""
        parts = {path: part for path, _, part in self.all_parts()}
        if not self.trainable:
            # One by one: on TensorFlow a flag set to what it is goes no deeper.
            for part in parts.values():
                part.trainable = False
        for path, trainable in self._trainable_parts.items():
            if path not in parts:
                raise ValueError(
                    f"{self.name} has no part {path!r}: trainable_parts may name "
                    f"{', '.join(parts)}."
                )
            parts[path].trainable = trainable

    def get_config(self) -> dict:
        # Before `build`, the argument and the flags of the parts there are.
        parts = {} if self.built else dict(self._trainable_parts)
        policies = {} if self.built else dict(self._part_policies)
        for path, owner, part in self.all_parts():
            if part.trainable != owner.trainable:
                parts[path] = part.trainable
            if part.dtype_policy != owner.dtype_policy:
                policies[path] = keras.dtype_policies.serialize(part.dtype_policy)
        named = {"trainable_parts": parts, "part_policies": policies}
        return super().get_config() | {key: one for key, one in named.items() if one}


def _inside(paths, prefix):
    """Returns what a dict of paths has of those below one."""
    return {
        path.removeprefix(prefix): value
        for path, value in paths.items()
        if path.startswith(prefix)
    }


def with_parts(layer: keras.layers.Layer) -> list:
    """Returns a layer and the layers with weights in it, owners first."""
    inner = layer.all_parts() if isinstance(layer, Composite) else ()
    return [layer, *(part for _, _, part in inner)]
