"""What shows that a directory is that of a run: only there may files be deleted or rewritten."""

import hashlib
import re

import msgspec

from sparktrain.base.decoding import converted
from sparktrain.errors import RunDirectoryError
from sparktrain.rundir.journal.reader import survey
from sparktrain.rundir.journal.writer import driver_of
from sparktrain.runs.history import read_overview
from sparktrain.runs.locate import RunLocation

_PLAN = re.compile(r"([0-9a-f]{16})\.json")


class _Overview(msgspec.Struct, frozen=True):
    """What `run.json` of every version has."""

    version: int
    name: str
    plan: str


def check_run(place: RunLocation) -> None:
    """Check that the directory has the `run.json` of a run. Blocks on the store.

    Raises RunDirectoryError where it has another one, where the file or the directory is a symbolic link, or where the
    file is corrupt; and OSError from the store, FileNotFoundError where there is no such file.
    """
    check_direct(place)
    where = place.store.where(place.layout.spec)
    try:
        overview = converted(read_overview(place.store, place.layout), _Overview)
    except msgspec.ValidationError as error:
        raise RunDirectoryError(f"{where} is not of a run of sparktrain: {error}") from error
    if _PLAN.fullmatch(f"{overview.plan}.json") is None:
        raise RunDirectoryError(
            f"{where} is not of a run of sparktrain: its plan ({overview.plan[:40]!r}) is no digest"
        )


def check_direct(place: RunLocation) -> None:
    """Check that neither the directory nor its `run.json` is a symbolic link. Blocks on the store.

    Raises RunDirectoryError, and OSError from the store.
    """
    # A removal that followed a link in place of the folder deleted what it led to.
    link = place.store.way_out(place.layout.spec)
    if link == place.layout.path:
        raise RunDirectoryError(f"{place.where} is a symbolic link: pass the directory that it leads to")
    if link is not None:
        raise RunDirectoryError(
            f"{place.store.where(link)} is a symbolic link, so that it does not show that {place.where} is a run: put "
            "the file itself there"
        )


def has_traces(place: RunLocation) -> bool:
    """Whether a driver has written the journal, or a plan, that this directory has. Blocks on the store.

    They show that a directory with a corrupt `run.json` is that of a run. Raises RunDirectoryError for the journal of a
    later sparktrain, OSError from the store.
    """
    store = place.store
    layout = place.layout
    try:
        if driver_of(store, layout.journal, survey(store, layout.journal).term) is not None:
            return True
    except FileNotFoundError:  # it was deleted since it was listed
        pass
    for name in store.entries(f"{layout.path}/plans"):
        match = _PLAN.fullmatch(name)
        path = f"{layout.path}/plans/{name}"
        if match is not None and hashlib.sha256(store.read(path)).hexdigest()[:16] == match[1]:
            return True
    return False
