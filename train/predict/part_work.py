"""The work on a part of photos, in this process or any other."""

import dataclasses
import math
import os
from collections.abc import Callable

from train.common.errors import RunError, explaining_full_memory
from train.predict import remote, shards
from train.predict.answers import spelled
from train.predict.part_folder import PartFolder
from train.predict.photo_predictor import PhotoPredictor
from zoo.common.safe_text import printable

# Photos of a shard that are answered together, and bytes of these in memory.
_PHOTOS, _BYTES = 512, 2**28


@dataclasses.dataclass(frozen=True)
class PartWork:
    """Answers the photos of a part and writes it, in any process that has the files.

    `progress` is that of a call of the predictor, in this process alone.
    """

    predictor: PhotoPredictor
    folder: PartFolder
    weights: str
    progress: Callable[[int], object] | None = None

    def shared_by(self, workers: int) -> "PartWork":
        """Returns the work of one of several processes, which expects its share."""
        share = self.predictor.num_photos
        if self.predictor.precision == "int8":
            # Engines differ visibly, and each process would choose its own.
            share = None
        elif share is not None:
            share = math.ceil(share / workers)
        predictor = dataclasses.replace(self.predictor, num_photos=share)
        return dataclasses.replace(self, predictor=predictor, progress=None)

    def __call__(self, number: int) -> int:
        """Writes a part; returns its number."""
        part, predictor = self.folder.part(number), self.predictor
        if predictor.digest != self.weights:
            raise RunError(
                f"The model {predictor.model} of this process has other weights than "
                "that of the command: give both the same."
            )
        with explaining_full_memory("lower --batch_size or --image_size."):
            chunks = self._of_shard(part) if part.shard else [self._of_photos(part)]
            columns = predictor.answer_columns
            size = predictor.classifier.num_features if predictor.features else None
            self.folder.write(number, chunks, columns, size)
        return number

    def _of_photos(self, part):
        places = [
            photo if remote.is_url(photo) else os.path.join(part.folder, photo)
            for photo in part.photos
        ]
        names = [spelled(photo) for photo in part.photos]
        return self.predictor(places, names, self.progress)

    def _of_shard(self, part):
        """Yields lists of the rows of a shard, whose damage is one that is not read."""
        for names, photos, unread in _chunks(part):
            yield [*self.predictor(photos, names, self.progress), *unread]


def _chunks(part):
    """Yields names and contents of photos in a shard, and rows of those not read."""
    name, shard = spelled(part.shard), part.shard
    if not remote.is_url(shard):
        shard = os.path.join(part.folder, shard)
    names, photos, unread, size, count = [], [], [], 0, 0
    if part.version and shards.version_of(shard) != [*part.version]:
        raise _changed(name)
    try:
        for inside, content, reason in shards.photos_of(shard, part.start, part.stop):
            count += 1
            file = f"{name}/{spelled(inside)}"
            if content is None:
                unread.append({"file": file, "error": reason})
                continue
            names.append(file)
            photos.append(content)
            size += len(content)
            if len(photos) == _PHOTOS or size > _BYTES:
                yield names, photos, unread
                names, photos, unread, size = [], [], [], 0
    except shards.DamagedError as error:
        unread.append({"file": name, "error": str(error)})
    except (OSError, ValueError) as error:
        reason = str(error).rstrip(".")
        raise RunError(
            f"The shard {printable(name)} cannot be read: {reason}. The same command "
            "goes on once it can."
        ) from error
    else:
        if part.stop is not None and count < part.stop - part.start:
            raise _changed(name)
    yield names, photos, unread


def _changed(name):
    return RunError(
        f"The shard {printable(name)} has changed since its photos were counted: pass "
        "another --out, where they are counted anew."
    )
