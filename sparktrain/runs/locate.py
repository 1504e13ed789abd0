"""Finds a run directory in any store from the path or URL that a user names."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sparktrain.config.store_address import STORE_TIMEOUT_S, StoreAddress
from sparktrain.config.sweep_spec import run_name
from sparktrain.errors import RunDirectoryError, SpecError, StoreError
from sparktrain.rundir.layout import RunLayout
from sparktrain.store.base import Store
from sparktrain.store.parallel import spread
from sparktrain.store.url import open_store

LOOK_TIMEOUT_S = 20.0
"""How long a command that only reads waits for a store that does not answer."""

_URL = re.compile(r"(?P<head>[A-Za-z][A-Za-z0-9+.-]+:(?://[^/]*)?)(?P<path>/.*)?")
_SHOWN_ENTRIES = 6
_CHECKS = 8
"""Folders that are checked concurrently: each check is a request to the store."""


@dataclass(frozen=True)
class RunLocation:
    """A directory that may hold one run."""

    store: Store
    layout: RunLayout

    @property
    def where(self) -> str:
        """The run directory, for people, and for the command line."""
        return self.store.where(self.layout.path)

    @property
    def has_run(self) -> bool:
        """Whether there is a run. Blocks on the store. Raises OSError."""
        return self.store.exists(self.layout.spec)


def place_of(directory: str, timeout_s: float = STORE_TIMEOUT_S) -> RunLocation:
    """The location of one run. Does not touch the store. Raises SpecError for what cannot be a run directory."""
    root, name = _split(directory)
    return RunLocation(open_store(StoreAddress(root, timeout_s=timeout_s)), RunLayout(run_name(name, "run directory")))


def run_in(directory: str, timeout_s: float = STORE_TIMEOUT_S, *, without_overview: bool = False) -> RunLocation:
    """The run in the directory; with `without_overview`, also a run without its run.json. Blocks on the store.

    Raises RunDirectoryError, which names what is there instead; SpecError for what cannot be a directory of a store.
    """
    try:
        places, alone = runs_in(directory, timeout_s)
    except RunDirectoryError:
        if (
            without_overview
            and "journal/" in open_store(StoreAddress(_absolute(directory), timeout_s=timeout_s)).entries()
        ):
            return place_of(directory, timeout_s)
        raise
    if alone:
        return places[0]
    names = [place.layout.path for place in places]
    shown = ", ".join(names[:_SHOWN_ENTRIES]) + (" ..." if len(names) > _SHOWN_ENTRIES else "")
    raise RunDirectoryError(f"{directory} holds {len(names)} runs: pass the directory of one of them ({shown})")


def runs_in(directory: str, timeout_s: float = STORE_TIMEOUT_S) -> tuple[list[RunLocation], bool]:
    """The run that the directory is of, and True; or the runs in its folders, by name, and False. Blocks on the store.

    Raises as `run_in`.
    """
    inside = store_of(directory, timeout_s)
    place = _place_or_none(directory, timeout_s)
    try:
        if place is not None and place.has_run:
            return [place], True
        entries = inside.entries()
        places = [RunLocation(inside, RunLayout(name)) for name in folders_among(entries)]
        are_runs = spread(lambda candidate, _: candidate.has_run, places, _CHECKS)
        runs = [candidate for candidate, is_run in zip(places, are_runs, strict=True) if is_run]
    except StoreError:
        raise  # its message has the next step
    except PermissionError as error:
        raise _unreadable(directory, error) from error
    if not runs:
        raise RunDirectoryError(f"{directory} is no run directory: {_instead(place, entries)}")
    return runs, False


def run_at(directory: str, timeout_s: float = STORE_TIMEOUT_S) -> RunLocation | None:
    """The run that the directory is of; None where it is none. Blocks on the store; raises as `run_in`."""
    place = _place_or_none(directory, timeout_s)
    try:
        return place if place is not None and place.has_run else None
    except StoreError:
        raise  # its message has the next step
    except PermissionError as error:
        raise _unreadable(directory, error) from error


def store_of(directory: str, timeout_s: float = STORE_TIMEOUT_S) -> Store:
    """The store with this directory as its root. Does not touch it. Raises SpecError for what cannot be one."""
    return open_store(StoreAddress(_absolute(directory), timeout_s=timeout_s))


def _place_or_none(directory: str, timeout_s: float) -> RunLocation | None:
    """None where no run can have such a name; the directory may hold runs."""
    try:
        return place_of(directory, timeout_s)
    except SpecError:
        return None


def _unreadable(directory: str, error: PermissionError) -> RunDirectoryError:
    return RunDirectoryError(f"{directory} cannot be read: {error.strerror or error}; ask its owner")


def _instead(place: RunLocation | None, entries: Sequence[str]) -> str:
    """What is there in place of a run, and the next step."""
    if place is not None and place.store.exists("run.json"):
        return f"it is part of a run; pass {place.store.where()}"
    if place is not None and place.store.exists(place.layout.path):
        return "it is a file; pass a directory that has run.json"
    if "journal/" in entries:
        return "its run.json is lost; put a copy back, or see `sparktrain fsck`"
    if not entries:
        return "there is no such directory, or it is empty; correct the path"
    shown = ", ".join(entries[:_SHOWN_ENTRIES]) + (f" and {len(entries) - _SHOWN_ENTRIES} more" * (len(entries) > 6))
    return f"it has {shown}, and neither run.json nor a folder with one; pass the directory of a run, or of several"


def folders_among(entries: Sequence[str]) -> list[str]:
    """The names of folders that can be run directories."""
    names = []
    for name in (entry[:-1] for entry in entries if entry.endswith("/")):
        try:
            names.append(run_name(name))
        except SpecError:
            continue
    return names


def _absolute(directory: str) -> str:
    return directory if _URL.fullmatch(directory) else os.path.abspath(os.path.expanduser(directory))


def _split(directory: str) -> tuple[str, str]:
    """The directory above, and the name within it; the name is empty for the root of a store."""
    location = _absolute(directory)
    url = _URL.fullmatch(location)
    head, path = (url["head"], url["path"] or "") if url else ("", location)
    parent, _, name = path.rstrip("/").rpartition("/")
    return head + (parent or "/"), name
