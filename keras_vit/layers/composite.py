"""What all layers that are made of layers share: they stay frozen."""

import keras


class Composite(keras.layers.Layer):
    """A layer of layers, as frozen after it is saved, loaded or cloned as before.

    Keras hands the flag `trainable` to the layers inside when it is set, but those
    that `build` makes come later, and a configuration has the outer flag alone. So the
    configuration also names the parts whose flag is another than their owner's, and
    `build` ends in `settle`.

    Args:
        trainable_parts: None, or dict of the paths of parts, such as
            `"attention.query"`, to their flags, owners before what they own.
        **kwargs: the arguments of `keras.layers.Layer`.
    """

    # The names of the attributes that are layers with weights; some may be missing.
    parts = ()

    def __init__(self, trainable_parts=None, **kwargs):
        super().__init__(**kwargs)
        self._trainable_parts = trainable_parts or {}

    def all_parts(self):
        """Yields (path, owner, part) of the parts and theirs, owners first."""
        for name in self.parts:
            part = getattr(self, name, None)
            if part is None:
                continue
            yield name, self, part
            if isinstance(part, Composite):
                for path, owner, inner in part.all_parts():
                    yield f"{name}.{path}", owner, inner

    def settle(self):
        """Freezes what was made since this layer was; `build` calls it at its end.

        Raises:
            ValueError: `trainable_parts` names a part that the layer does not have.
        """
        found = {path: part for path, _, part in self.all_parts()}
        if not self.trainable:
            # One by one: on TensorFlow a flag set to what it is goes no deeper.
            for part in found.values():
                part.trainable = False
        for path, trainable in self._trainable_parts.items():
            if path not in found:
                raise ValueError(
                    f"{self.name} has no part {path!r}: trainable_parts may name "
                    f"{', '.join(found)}."
                )
            found[path].trainable = trainable

    def get_config(self):
        # Before `build`, what was asked for and what the parts there are say by now.
        parts = {} if self.built else dict(self._trainable_parts)
        for path, owner, part in self.all_parts():
            if part.trainable != owner.trainable:
                parts[path] = part.trainable
        config = super().get_config()
        return {**config, "trainable_parts": parts} if parts else config
