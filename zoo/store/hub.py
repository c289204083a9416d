"""Models of the Hugging Face hub: `hf://org/name`, with or without `@revision`.

`huggingface_hub` downloads and caches them, and its environment applies: `HF_HOME`,
`HF_TOKEN`, `HF_ENDPOINT`, `HF_HUB_OFFLINE` (also set by `KERAS_VIT_OFFLINE`). Only the
arrays and settings that `zoo.read` needs are downloaded, and never a pickle, which can
run code.
"""

import contextlib
import functools
import os
import pathlib
import re

from zoo import store
from zoo.common.regular_files import expand_home
from zoo.containers import opening
from zoo.libraries import reading
from zoo.store import FULL_DISK, StoreError

_SCHEME = "hf://"
# No dots at the ends or in a row: these become folders.
_PART = r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*"
_REPOSITORY = re.compile(f"{_PART}/{_PART}")
_REVISION = re.compile(f"{_PART}(?:/{_PART})*")
# The card of a published model, and the settings that other libraries write.
_BESIDE = ("model.json", *reading.BESIDE)
_LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"
_MOST_LISTED = 10


def is_handle(source: str | os.PathLike) -> bool:
    """Returns whether a source begins with `hf://`.

    Example:
        >>> from zoo.store import hub
        >>> hub.is_handle("hf://google/vit-base-patch16-224")
        True
    """
    return isinstance(source, str) and source.startswith(_SCHEME)


def fetch(handle: str) -> pathlib.Path:
    """Returns a local folder for a repository, downloading it the first time.

    Args:
        handle: str, `hf://org/name` or `hf://org/name@revision`; a revision is a
            branch, a tag or a commit.

    Returns:
        `pathlib.Path` of a folder for `zoo.read`. Without a network, that of the last
        download.

    Raises:
        StoreError: a malformed handle; `huggingface_hub` is not installed; no such
            repository or revision, or no access to it; no file that `zoo.read` reads;
            no network, or offline, and not downloaded before; a full disk.

    Source: https://huggingface.co/docs/huggingface_hub/guides/download.

    Example:
        >>> from zoo.store import hub
        >>> hub.fetch("hf://google/vit-base-patch16-224")  # doctest: +SKIP
    """
    repository, at, revision = handle.removeprefix(_SCHEME).partition("@")
    _check_name(repository)
    if at and not _REVISION.fullmatch(revision):
        raise StoreError(
            f"Cannot download {handle!r}: {revision!r} is not a branch, tag or commit."
        )
    library = _library()
    download = functools.partial(
        library.snapshot_download, repository, local_files_only=store.offline()
    )
    with _explained(f"download {handle}", repository):
        # The settings first: arrays without them would be taken for another model's.
        folder = download(revision=revision or None, allow_patterns=list(_BESIDE))
        commit = os.path.basename(folder)
        listing = library.get_cached_repo_tree(repository, revision=commit)
        chosen = _choose([file.path for file in listing], handle)
        folder = download(revision=commit, allow_patterns=[*_BESIDE, *chosen])
    return pathlib.Path(folder)


def cached(handle: str) -> pathlib.Path | None:
    """Returns the local folder of a repository, None if it was not downloaded."""
    repository, _, revision = handle.removeprefix(_SCHEME).partition("@")
    try:
        from huggingface_hub.constants import HF_HUB_CACHE
    except ImportError:
        return None
    # Without the rest of the library, which takes longer than all of `zoo list`.
    place = os.path.join(HF_HUB_CACHE, f"models--{repository.replace('/', '--')}")
    if not os.path.isdir(place):
        return None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    with contextlib.suppress(LocalEntryNotFoundError):
        return pathlib.Path(
            snapshot_download(
                repository, revision=revision or None, local_files_only=True
            )
        )
    return None


def push(
    folder: str | os.PathLike,
    repository: str,
    *,
    private: bool = False,
    message: str | None = None,
) -> str:
    """Uploads a folder with a model, creating the repository if there is none.

    Args:
        folder: path of a folder that `zoo.read` reads; all its files are uploaded.
        repository: `org/name`.
        private: whether a new repository is private.
        message: of the commit.

    Returns:
        The URL of the repository.

    Raises:
        StoreError: a malformed name; no model in the folder; `huggingface_hub` is not
            installed; nobody is logged in, or without the right to write; no network.

    Source: https://huggingface.co/docs/huggingface_hub/guides/upload.

    Example:
        >>> from zoo.store import hub
        >>> hub.push("registry/flowers", "me/flowers")  # doctest: +SKIP
        'https://huggingface.co/me/flowers'
    """
    check_push(repository)
    folder = expand_home(folder, "folder")
    if not os.path.isdir(folder):
        raise StoreError(f"There is no folder {folder}: check the path.")
    _choose(os.listdir(folder), folder)
    with _explained(f"upload {folder} to {repository}", repository):
        api = _library().HfApi()
        url = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message=message
        )
    return str(url)


def check_push(repository: str) -> None:
    """Raises `StoreError` where `push` could not work: the name, library or login."""
    _check_name(repository)
    if _library().get_token() is None:
        raise StoreError(
            f"Cannot upload to {repository}: nobody is logged in to the hub, {_LOG_IN} "
            "to a token that may write."
        )


def _check_name(name):
    if not _REPOSITORY.fullmatch(name):
        raise StoreError(
            f"{name!r} is not a model of the hub: expected org/name, as in "
            f"{_SCHEME}google/vit-base-patch16-224."
        )


def _library():
    try:
        import huggingface_hub
        from huggingface_hub import get_cached_repo_tree  # noqa: F401 - a new one
    except ImportError as error:
        raise StoreError(
            f"Models of the hub need a recent huggingface_hub ({error}): "
            "pip install --upgrade huggingface_hub"
        ) from error
    return huggingface_hub


def _choose(files, place):
    """Returns the patterns of the files that hold the arrays."""
    for name in opening.WEIGHTS:
        if name in files:
            return [name, opening.SHARDS] if name == opening.INDEX else [name]
    wanted = ", ".join(opening.FILES_IN_FOLDERS)
    if pickles := sorted(name for name in files if name.endswith(opening.PICKLES)):
        raise StoreError(
            f"{place} has only {', '.join(pickles[:_MOST_LISTED])}, and a pickle can "
            f"run code when it is read: convert it to one of {wanted}, for one with "
            "transformers: ViTForImageClassification.from_pretrained(...)"
            ".save_pretrained(folder)."
        )
    raise StoreError(
        f"{place} has none of {wanted}: it has "
        f"{', '.join(sorted(files)[:_MOST_LISTED]) or 'no files'}."
    )


@contextlib.contextmanager
def _explained(action, repository):
    """Turns errors of the network, the hub and the cache into `StoreError`."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        # Errors of the library, its HTTP client and Xet have no common base class.
        raise StoreError(f"Cannot {action}: {_reason(error, repository)}") from error


def _reason(error, repository):
    from huggingface_hub import HfApi, constants, errors

    if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__:
        error = error.__cause__
    said = " ".join(str(error).split())
    page = f"{HfApi().endpoint}/{repository}"
    # GatedRepoError comes first: it is a RepositoryNotFoundError.
    reasons = {
        errors.GatedRepoError: f"it is gated: ask for access at {page}, and {_LOG_IN}.",
        errors.RepositoryNotFoundError: f"there is no {page}, or it is private: check "
        f"the name, and if it is private, {_LOG_IN}.",
        errors.HFValidationError: said,
        errors.RevisionNotFoundError: "it has no such revision: choose one of "
        f"{page}/commits/main.",
        (
            errors.LocalEntryNotFoundError,
            errors.CachedRepoTreeNotFoundError,
            errors.OfflineModeIsEnabled,
        ): "it was not downloaded whole before, and KERAS_VIT_OFFLINE or "
        "HF_HUB_OFFLINE is set: unset it.",
    }
    for kind, reason in reasons.items():
        if isinstance(error, kind):
            return reason
    if isinstance(error, errors.HfHubHTTPError):
        if error.response.status_code in (401, 403):
            return f"the token may not do that ({said}): {_LOG_IN} to another."
        return f"the hub refused it ({said}): try again later."
    number, cache = getattr(error, "errno", None), constants.HF_HUB_CACHE
    if number in FULL_DISK:
        return (
            f"the disk is full: free some space in {cache}, or set HF_HOME to a folder "
            "on another disk."
        )
    if number is not None:
        return f"{said}: check {cache}, or set HF_HOME to a folder that can be written."
    return f"{type(error).__name__}: {said}. Check the network and try again."
