"""The photos that a command line names, found as they are needed."""

import collections
import glob
import hashlib
import itertools
import os
import pathlib
import sys
from collections.abc import Callable

from train.common.errors import RunError
from train.data.archives import unpacked
from train.data.registry import is_archive
from train.predict import remote
from train.predict.shards import is_shard
from zoo import photos
from zoo.common.regular_files import missing_remedy
from zoo.common.safe_text import counted, named, printable

STDIN = "-"


class Photos:
    """Photos given as files, folders, patterns, URLs, and a list on standard input.

    Iterating yields paths, one after another: of a folder first its own photos, sorted,
    then those of its folders. Files and folders whose names begin with a dot are left
    out, and files without the ending of a photo; a file that is named itself may have
    any name. Links to folders are followed, but no folder is read twice. A folder that
    cannot be read is yielded like a photo, as which it cannot be read either.

    `places` are paths, also of archives, patterns such as `photos/*.jpg` that the shell
    has left as they are, URLs of these that fsspec opens, or `-` for paths and URLs on
    standard input, one per line; `without`
    are folders that are left out of the others. `with_shards` says whether shards, see
    `train.predict.shards`, are yielded as paths; otherwise archives are unpacked.
    `others` counts the files without the
    ending of a photo that the last iteration has found, by ending. Raises a `RunError`
    where there is no such file, or nothing that fits a pattern.
    """

    def __init__(self, places, without=(), with_shards=False):
        self.places = list(places)
        self._with_shards = with_shards
        self.others = collections.Counter()
        self._others_at_urls = collections.Counter()
        self._without = {os.path.realpath(folder) for folder in without}
        self._endings = photos.endings()
        self._listed = hashlib.blake2b(digest_size=16)
        # Remember the real paths of folders that were given, or that links led to.
        self._tops = set()
        self._found = {
            place: self._expanded(place) for place in self.places if place != STDIN
        }

    def count(self, is_known: Callable[[str], bool] | None = None) -> int | None:
        """Returns how many photos there are, None if they are on standard input.

        Photos for which the function `is_known` is true are not counted.
        """
        if STDIN in self.places:
            return None
        return sum(1 for path in self if not (is_known and is_known(path)))

    def digest_of_list(self) -> str:
        """Returns a digest of the list on standard input, which is read to its end."""
        collections.deque(self._lines(), maxlen=0)
        return self._listed.hexdigest()

    def _lines(self):
        for line in sys.stdin.buffer:
            if line := line.rstrip(b"\r\n"):
                # The ends of lines differ by the system and the editor.
                self._listed.update(line + b"\n")
                yield os.fsdecode(line)

    def __iter__(self):
        self.others = collections.Counter(self._others_at_urls)
        self._tops = {
            os.path.realpath(path)
            for path in itertools.chain.from_iterable(self._found.values())
            if os.path.isdir(path)
        }
        for place in self.places:
            if place == STDIN:
                for path in self._lines():
                    yield from self._files(path)
            else:
                for path in self._found[place]:
                    yield from self._files(path)

    def _files(self, path):
        if not os.path.isdir(path):
            yield path
        elif os.path.realpath(path) not in self._without:
            yield from self._below(path)

    def _below(self, folder):
        files, folders = [], []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if os.path.isdir(entry) if entry.is_symlink() else entry.is_dir():
                        folders.append((entry.name, entry.is_symlink()))
                    elif self._is_taken(entry.name):
                        files.append(entry.name)
                    else:
                        self.others[os.path.splitext(entry.name)[1].lower()] += 1
        except OSError:
            yield folder
            return
        for name in sorted(files):
            yield os.path.join(folder, name)
        del files
        for name, is_link in sorted(folders):
            path = os.path.join(folder, name)
            if self._is_new(os.path.realpath(path), is_link):
                yield from self._files(path)

    def _is_taken(self, name):
        """Returns whether a file in a folder is read, by its name."""
        is_photo = name.lower().endswith(self._endings)
        return is_photo or (self._with_shards and is_shard(name))

    def _expanded(self, place):
        """Returns the paths and URLs that a word of the command line means."""
        if remote.is_url(place):
            return self._at_url(place)
        path = os.path.expanduser(place)
        if is_archive(path) and os.path.isfile(path) and not self._with_shards:
            return [str(unpacked(path))]
        if os.path.exists(path):
            return [path]
        if not glob.has_magic(path):
            raise RunError(
                f"There is no photo or folder {place}: {missing_remedy(path)}"
            )
        # A bracket may be that of a name.
        paths = sorted({*_matches(path), *_matches(path.replace("[", "[[]"))})
        if not paths:
            raise RunError(f"No photo fits {place}: check the pattern.")
        return paths

    def _at_url(self, place):
        if is_archive(place) and not self._with_shards:
            raise RunError(
                f"{place} is an archive at a URL: pass --out=FOLDER, which reads it as "
                "a shard, or download it first."
            )
        try:
            found = remote.files_of(place, self._is_taken)
        except (OSError, ValueError) as error:
            raise RunError(
                f"There is no photo or folder {error}: check the URL, and whether this "
                "machine may read it."
            ) from error
        if not found:
            raise RunError(f"There is no file at {place}: check the URL.")
        urls = []
        for url, is_meant in found:
            name = url.rpartition("/")[2]
            if is_meant or self._is_taken(name):
                urls.append(url)
            else:
                self._others_at_urls[os.path.splitext(name)[1].lower()] += 1
        return urls

    def _is_new(self, real, is_link):
        """Returns whether a folder in another one is read from there only."""
        if not is_link:
            return real not in self._tops
        for place in (pathlib.Path(real), *pathlib.Path(real).parents):
            if str(place) in self._tops:
                return False
            # Hidden folders are read by links alone.
            if place.name.startswith("."):
                break
        self._tops.add(real)
        return True

    def note(self) -> str:
        """Returns a sentence on the files that were left out, empty without any."""
        if not self.others:
            return ""
        kinds = named(
            [printable(end, 20) or "no ending" for end in sorted(self.others)]
        )
        heic = any(ending in photos.HEIC_ENDINGS for ending in self.others)
        remedy = "; pip install pillow-heif reads HEIC photos" if heic else ""
        files = counted(sum(self.others.values()), "file")
        return f"left out {files} with the endings of no photo ({kinds}){remedy}"


def _matches(pattern):
    """Returns the paths that fit a pattern; `**` follows no links to folders."""
    head, stars, tail = f"{pattern}/".partition("**/")
    if not stars or head[-1:] not in ("", "/"):
        return glob.glob(pattern)
    paths, unreadable = set(), []
    for top in glob.glob(head) if head else [""]:
        for folder, folders, _ in os.walk(top or os.curdir, onerror=unreadable.append):
            folders[:] = [name for name in folders if not name.startswith(".")]
            folder = os.path.join(folder, "")[0 if top else len("./") :]
            paths.update(_matches(glob.escape(folder) + (tail[:-1] or "*")))
    # Leave folders out: the list has what is in them, too.
    paths = {path for path in paths if not os.path.isdir(path)}
    return paths.union(error.filename for error in unreadable)
