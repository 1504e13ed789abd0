"""A SavedModel in a store: found by the driver, fetched once to each host, and compared by its digest."""

import hashlib
import os
from pathlib import Path

from msgspec import Struct

from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import DataError, MissingFileError
from sparktrain.ml.inference.model_file import STORE_TIMEOUT_S, absolute
from sparktrain.ml.inference.model_folder import ModelFolder
from sparktrain.ml.inference.saved_model_export import GRAPH
from sparktrain.store.base import Store
from sparktrain.store.folder_removal import remove
from sparktrain.store.localfs import LocalStore
from sparktrain.store.url import open_store

FETCHED = "saved_model"


class SavedModelFiles(Struct, frozen=True):
    """A SavedModel as tasks get it: they read the files themselves, and refuse others in their place."""

    url: str
    paths: tuple[str, ...]
    sha256: str
    """Of names and contents of all files."""

    def fetch(self, folder: ModelFolder) -> Path:
        """The model on this host, a folder. Blocks on the store the first time. Raises DataError, OSError."""
        return folder.file(FETCHED, self._fetch_to, self.is_intact)

    def is_intact(self, place: Path) -> bool:
        """Whether no byte of the model on this host has changed since it was fetched."""
        try:
            return _digest(LocalStore(place), self.paths) == self.sha256
        except FileNotFoundError:
            return False

    def _fetch_to(self, place: Path) -> None:
        remove(place)  # of a killed process
        try:
            if _digest(_store_at(self.url), self.paths, place) != self.sha256:
                raise DataError(
                    f"the model {self.url} has changed since the call that predicts with it: call it again for the new "
                    "one"
                )
        except BaseException:
            remove(place)
            raise


def saved_model_at(url: str) -> tuple[SavedModelFiles, bytes]:
    """The model in this folder, a path or a URL, and the content of its `saved_model.pb`. Blocks on the store.

    Raises MissingFileError when there is no SavedModel, OSError when the store fails.
    """
    full_url = absolute(url)
    store = _store_at(full_url)
    paths = tuple(store.list())
    if GRAPH not in paths:
        above = sorted(path.removesuffix(f"/{GRAPH}") for path in paths if path.endswith(f"/{GRAPH}"))
        step = f"there is one in {full_url.rstrip('/')}/{above[-1]}: pass that" if above else (
            "export one there: compat.export_saved_model(model, export_dir, is_chief), or model.export(export_dir) in "
            "the chief"
        )  # fmt: skip
        raise MissingFileError(f"there is no SavedModel (a folder with {GRAPH}) at {full_url}; {step}")
    return SavedModelFiles(full_url, paths, _digest(store, paths)), store.read(GRAPH)


def _store_at(url: str) -> Store:
    return open_store(StoreAddress(url, timeout_s=STORE_TIMEOUT_S))


def _digest(store: Store, paths: tuple[str, ...], place: Path | None = None) -> str:
    """The digest of the files, which are copied to the folder `place` if there is one."""
    digest = hashlib.sha256()
    for path in paths:
        # With the lengths, so that no other names and contents give the same bytes.
        digest.update(f"{len(path)}:{path}\0".encode())
        size = 0
        target = None if place is None else place / path
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
        with open(os.devnull if target is None else target, "wb") as file:
            for piece in store.pieces(path):
                digest.update(piece)
                size += len(piece)
                file.write(piece)
        digest.update(f"\0{size}".encode())
    return digest.hexdigest()
