"""The work on a part of photos, in this process or any other."""

import dataclasses
import os

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
    """Answers the photos of a part and writes it, in any process that has the files."""

    predictor: PhotoPredictor
    folder: PartFolder

    def __call__(self, number: int) -> int:
        """Writes a part; returns its number."""
        part, predictor = self.folder.part(number), self.predictor
        with explaining_full_memory("lower --batch_size or --image_size."):
            rows = self._of_shard(part) if part.shard else self._of_photos(part)
            columns = predictor.answer_columns
            size = predictor.classifier.num_features if predictor.features else None
            self.folder.write(number, rows, columns, size)
        return number

    def _of_photos(self, part):
        places = [
            photo if remote.is_url(photo) else os.path.join(part.folder, photo)
            for photo in part.photos
        ]
        return self.predictor(places, [spelled(photo) for photo in part.photos])

    def _of_shard(self, part):
        """Yields the rows of a shard; damage to it is one that could not be read."""
        name = spelled(part.shard)
        names, photos, size = [], [], 0
        shard = part.shard
        if not remote.is_url(shard):
            shard = os.path.join(part.folder, shard)
        try:
            for inside, content in shards.photos_of(shard):
                names.append(f"{name}/{spelled(inside)}")
                photos.append(content)
                size += len(content)
                if len(photos) == _PHOTOS or size > _BYTES:
                    yield from self.predictor(photos, names)
                    names, photos, size = [], [], 0
        except shards.DamagedError as error:
            yield {"file": name, "error": str(error)}
        except OSError as error:
            raise RunError(
                f"The shard {printable(name)} cannot be read: {error}. The same "
                "command goes on once it can."
            ) from error
        yield from self.predictor(photos, names)
