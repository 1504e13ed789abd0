"""A `.keras` file in a store: found by the driver, fetched once to each host, and compared by its digest."""

import hashlib
import os
import re
import zipfile
from pathlib import Path

from msgspec import Struct

from sparktrain.base.formatting import size as shown_size
from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import DataError, MissingFileError, SpecError
from sparktrain.ml.inference.model_folder import ModelFolder, arriving
from sparktrain.store.url import open_store

SUFFIX = ".keras"
FETCHED = "model.keras"
"""The name in the folder of the host: Keras knows the format by it."""
STORE_TIMEOUT_S = 120.0
"""How long a host waits for a store that does not answer."""
_NEEDED = ("config.json", "model.weights.h5")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


class ModelFile(Struct, frozen=True):
    """A model as tasks get it: they read the file themselves, and refuse another one in its place."""

    url: str
    """A path or a URL."""
    size: int
    sha256: str
    modules: tuple[str, ...] = ()
    """To import before the model is loaded: they register layers of the user's own with Keras."""

    def fetch(self, folder: ModelFolder) -> Path:
        """The file on this host. Blocks on the store the first time. Raises MissingFileError, DataError, OSError."""
        return folder.file(FETCHED, self._fetch_to, self.is_intact)

    def is_intact(self, path: Path) -> bool:
        """Whether no byte of the file on this host has changed since it was fetched."""
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256

    def _fetch_to(self, path: Path) -> None:
        if _copied(self.url, path) != self.sha256:
            raise DataError(
                f"the model {self.url} has changed since the call that predicts with it: call it again for the new one"
            )


def model_at(url: str, modules: tuple[str, ...] = ()) -> tuple[ModelFile, ModelFolder]:
    """The model in this file, and its folder on this host, which the caller releases. Blocks on the store.

    Raises SpecError for a name without `.keras`, MissingFileError when there is no such file, DataError when it is no
    model of Keras, OSError when the store fails.
    """
    if not url.endswith(SUFFIX):
        raise SpecError(
            f"model ({url}) must be a {SUFFIX} file, or the directory of a run that exported one: save a Keras model "
            "with model.save('name.keras'), and apply one of another library by result.load_model() in "
            "df.mapInPandas()"
        )
    full_url = absolute(url)
    with arriving() as path:
        digest = _copied(full_url, path)
        check_archive(path, full_url)
        model = ModelFile(full_url, path.stat().st_size, digest, modules)
        folder = ModelFolder.hold(digest)
        folder.file(FETCHED, lambda place: os.replace(path, place), model.is_intact)
        return model, folder


def absolute(url: str) -> str:
    """A URL itself; the absolute path of anything else."""
    return url if _URL.match(url) else os.path.abspath(os.path.expanduser(url))


def check_archive(path: Path, url: str) -> None:
    """Raises DataError when the file is not what Keras 3 saves."""
    problem = f"it has {shown_size(path.stat().st_size)} and is no zip archive"
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            missing = [name for name in _NEEDED if name not in archive.namelist()]
        if not missing:
            return
        problem = f"it has no {' and no '.join(missing)}"
    raise DataError(f"{url} is no model of Keras 3 ({problem}): save it with model.save('name.keras')")


def _copied(url: str, path: Path) -> str:
    """Copy the file to `path`; its digest. Raises MissingFileError where there is none."""
    above, _, name = url.rpartition("/")
    root = f"{above}/" if not above or above.endswith((":", "/")) else above
    store = open_store(StoreAddress(root, timeout_s=STORE_TIMEOUT_S))
    digest = hashlib.sha256()
    try:
        with path.open("wb") as file:
            for piece in store.pieces(name):
                digest.update(piece)
                file.write(piece)
    except FileNotFoundError:
        raise MissingFileError(
            f"there is no model {url} that host {os.uname().nodename} can read: correct the path, or put it on storage "
            "that the driver and all executors share"
        ) from None
    return digest.hexdigest()
