"""What a model makes of photos: arrays, and the figures that show them."""

import dataclasses
import functools

import numpy as np

from keras_vit import explain
from keras_vit.explain import figures
from keras_vit.structure import num_layers, pooling_of
from train.explain.book import Drawn
from train.explain.photos import Photo

# Of attention weights at a time, in float32 numbers: 512 MB.
_NUMBERS_AT_ONCE = 2**27
_SHARE = "share of the attention"
_RELEVANCE = "relevance, in units of the output"
_TITLE = 32


class Gathered:
    """The arrays that a function gives of all images, a few at a time.

    Args:
        function: of images to an array, or to a ValueError that says why not.
        axis: int, that of the images.
    """

    def __init__(self, function, axis):
        self.function = function
        self.axis = axis
        self.parts = []
        self.why_not = None

    def add(self, images):
        """Calls the function, unless it has failed before.

        Args:
            images: float array (images, height, width, channels).
        """
        if self.why_not is None:
            try:
                self.parts.append(self.function(images))
            except ValueError as error:
                self.why_not = str(error)

    def all(self):
        """Returns the array of all images.

        Raises:
            ValueError: there is none; it says why.
        """
        if self.why_not is not None:
            raise ValueError(self.why_not)
        return np.concatenate(self.parts, self.axis)


@dataclasses.dataclass(frozen=True)
class Look:
    """What came of one photo.

    Args:
        photo: `train.explain.photos.Photo`.
        figures: tuple of `train.explain.book.Drawn`.
        rollout: float32 array (rows, columns), None where there is none.
        maps: float32 array (layers, heads, rows, columns) of attention, None where
            there is none.
    """

    photo: Photo
    figures: tuple[Drawn, ...]
    rollout: np.ndarray | None
    maps: np.ndarray | None


class Looker:
    """Looks inside a model.

    Args:
        given: `train.inference.given_model.GivenModel`.
        book: `train.explain.book.Book`, into which figures go.
    """

    def __init__(self, given, book):
        self.model = given.model
        self.name = given.name
        self.book = book

    @property
    def who_looks(self):
        """Whose row of the attention is shown."""
        if pooling_of(self.model) == "token":
            return "the class token"
        return "the mean of the patches"

    def sizes(self):
        """Returns what is known of the model's sizes, a dict of lists and numbers."""
        try:
            grid = explain.grid_size(self.model)
            layers = num_layers(self.model)
        except ValueError:
            return {}
        return {"patches": list(grid), "layers": layers}

    def distances(self, images):
        """Returns attention distances, see `keras_vit.explain.attention_distance`.

        Args:
            images: float array (images, height, width, channels).
        """
        return explain.attention_distance(self.model, images)

    def at_photo(self, photo, wanted):
        """Draws what there is of one photo.

        Args:
            photo: `train.explain.photos.Photo`.
            wanted: tuple of the number and the name of the class that the
                gradient-weighted attention is for; None where there are no classes.

        Returns:
            `Look`.
        """
        model, image, picture = self.model, photo.image, photo.picture
        rollout = functools.cache(
            lambda: self._map(explain.attention_rollout(model, image)[0])
        )
        maps = functools.cache(lambda: self._maps(image))

        def draw_rollout():
            title = self._title("attention rollout")
            drawn = figures.draw_overlay(picture, rollout(), title, _first(_SHARE))
            return drawn, {"map": rollout(), "unit": _SHARE}

        def draw_gradient():
            number, name = wanted or (None, "the largest output")
            relevance = self._map(explain.gradient_attention(model, image, number)[0])
            drawn = figures.draw_overlay(
                picture,
                relevance,
                self._title(f"attention for {_short(name)}"),
                _first(_RELEVANCE),
            )
            numbers = {"map": relevance, "unit": _RELEVANCE, "class_name": name}
            return drawn, numbers

        def draw_layers():
            means = maps().mean(axis=1)
            title = self._title("mean attention of each layer")
            drawn = figures.draw_layers(picture, means, title)
            return drawn, {"maps": means, "unit": _SHARE}

        def draw_heads():
            title = self._title("attention of every head")
            drawn = figures.draw_heads(picture, maps(), title)
            return drawn, {"maps": maps(), "unit": _SHARE}

        def draw_features():
            features = explain.token_features(model, image)
            colors = explain.principal_colors(features.patches)
            title = self._title("patch features")
            drawn = figures.draw_features([picture], colors, [photo.name], title)
            numbers = {"colors": colors[0], "patches": features.patches[0]}
            if features.class_token is not None:
                numbers["class_token"] = features.class_token[0]
            return drawn, numbers

        makers = {
            "rollout": draw_rollout,
            "gradient": draw_gradient,
            "layers": draw_layers,
            "heads": draw_heads,
            "features": draw_features,
        }
        drawn = {
            kind: self.book.draw(kind, make, photo) for kind, make in makers.items()
        }
        return Look(
            photo,
            tuple(drawn.values()),
            rollout() if drawn["rollout"].why_not is None else None,
            maps() if drawn["heads"].why_not is None else None,
        )

    def at_all(self, looks, captions):
        """Draws the page of all photos that are shown, the paper's Figure 6.

        Args:
            looks: sequence of `Look`.
            captions: sequence of str, what stands below each.

        Returns:
            `Drawn`.
        """

        def make():
            if "rollout" in self.book.missing:
                raise ValueError(self.book.missing["rollout"])
            maps = np.stack([look.rollout for look in looks])
            drawn = figures.draw_attention(
                [look.photo.picture for look in looks],
                maps,
                [_short(caption) for caption in captions],
                self._title("attention rollout"),
            )
            files = [look.photo.name for look in looks]
            return drawn, {"maps": maps, "photos": files, "unit": _SHARE}

        return self.book.draw("attention", make)

    def at_model(self, distances, names):
        """Draws what there is of the model itself, the paper's Figure 7.

        Args:
            distances: `Gathered` of attention distances of all photos.
            names: sequence of str, of the photos.

        Returns:
            List of `Drawn`.
        """
        model, title, found = self.model, self._title, {}

        def draw_filters():
            filters = explain.embedding_filters(model)
            drawn = figures.draw_filters(filters, title(f"filters of {filters.layer}"))
            found["filters"] = filters
            return drawn, dataclasses.asdict(filters)

        def draw_similarity():
            similarity = explain.position_embedding_similarity(model)
            drawn = figures.draw_position_similarity(
                similarity, title("position embeddings")
            )
            found["similarity"] = similarity
            return drawn, {"similarity": similarity, "unit": "cosine"}

        def draw_distance():
            distance = distances.all()
            drawn = figures.draw_attention_distance(
                distance, title("attention distance"), model.input_shape[1:3]
            )
            found["distance"] = distance
            return drawn, {"distance": distance, "unit": "pixels", "photos": names}

        def draw_figure_7():
            panels = [found.get(name) for name in ("filters", "similarity", "distance")]
            drawn = figures.draw_figure_7(*panels, self.name)
            numbers = dict(found)
            if "filters" in found:
                numbers |= dataclasses.asdict(numbers.pop("filters"))
            return drawn, numbers

        alone = [
            self.book.draw("filters", draw_filters),
            self.book.draw("position_similarity", draw_similarity),
            self.book.draw("attention_distance", draw_distance),
        ]
        return [self.book.draw("figure_7", draw_figure_7), *alone]

    def _title(self, what):
        return f"{self.name}: {what}"

    def _map(self, matrix):
        grid = explain.grid_size(self.model)
        pooling = pooling_of(self.model)
        return explain.patch_map(matrix, grid, pooling).astype("float32")

    def _maps(self, image):
        """Of every layer and head, (layers, heads, rows, columns), some at a time."""
        model, count = self.model, num_layers(self.model)
        parts, done, at_once = [], 0, 1
        while done < count:
            layers = range(done, min(done + at_once, count))
            found = explain.attention_maps(model, image, layers=layers)[:, 0]
            at_once = max(1, _NUMBERS_AT_ONCE * len(layers) // found.size)
            parts.append(self._map(found))
            done += len(layers)
        return np.concatenate(parts)


def _first(text):
    return text[0].upper() + text[1:]


def _short(name):
    return name if len(name) <= _TITLE else f"{name[: _TITLE - 1]}…"
