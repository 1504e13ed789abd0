"""Which run a directory holds: the id that its drivers carry on, and whether the directory is a copy.

A driver that takes a run over notes in the file of its term the id of the run, the place of the directory, and what the
store identifies the folder by. The next one carries the id on where it finds the same folder, as in a directory that
was renamed or is reached by a link, a mount or another URL; in a store that identifies no folder, at the same place.
Elsewhere the directory is a copy, or was moved in a way that looks the same; the driver gives it an id of its own,
because the original may train too. It looks at no other directory.
"""

import hashlib
import json
from uuid import uuid4

import msgspec
from msgspec import Struct

from sparktrain.base.decoding import from_json
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.journal_file import VERSION, check_version
from sparktrain.rundir.journal.reader import survey
from sparktrain.rundir.layout import JournalLayout
from sparktrain.rundir.run_place import RunPlace
from sparktrain.store.base import Store


class RunClaim(Struct, frozen=True, kw_only=True):
    """The file with which a driver takes over."""

    version: int = VERSION
    term: int
    nonce: str
    """Makes the bytes of each driver's file unique: a store may read a file back to find out who wrote it."""
    who: DriverIdentity
    run: str = ""
    """Id of the run; empty where an older sparktrain wrote the file."""
    at: RunPlace = RunPlace()
    """Where its directory was."""


class _AnyClaim(Struct, frozen=True):
    """The part of that file that every later version has too."""

    version: int
    who: dict[str, object]


def new_claim(store: Store, layout: JournalLayout, who: DriverIdentity, term: int, former: RunClaim | None) -> RunClaim:
    """The claim of a driver that follows `former`. Blocks on the store; raises OSError."""
    place = RunPlace.of(store, layout.run)
    # Not of an older version, which has noted no place: two copies of its run would have one id.
    run = former.run if former is not None and former.at.is_still(place) else f"{layout.run}-{uuid4().hex[:12]}"
    return RunClaim(term=term, nonce=uuid4().hex, who=who, run=run, at=place)


def read_claim(store: Store, layout: JournalLayout, term: int) -> RunClaim | None:
    """The claim of a term; None for term 0, or where its file cannot be read. Blocks; raises OSError.

    Raises RunDirectoryError for the journal of a later sparktrain.
    """
    if term == 0:
        return None
    content = store.read(layout.term(term))
    where = store.where(layout.term(term))
    try:
        claim = from_json(content, _AnyClaim)
        check_version(claim.version, str(claim.who.get("sparktrain")), where)
        return from_json(content, RunClaim)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def is_copy(store: Store, layout: JournalLayout) -> bool:
    """Whether the newest driver had another directory, and none has resumed this copy. Blocks; raises as `run_id`."""
    claim = read_claim(store, layout, survey(store, layout).term)
    return claim is not None and claim.at.is_elsewhere(RunPlace.of(store, layout.run))


def run_id(store: Store, layout: JournalLayout) -> str:
    """The id that the newest driver of a run had. Blocks; raises OSError, and RunDirectoryError as `read_claim`."""
    claim = read_claim(store, layout, survey(store, layout).term)
    return (claim.run if claim is not None else "") or _older_id(store, layout) or layout.run


def tracked_id(store: Store, layout: JournalLayout) -> str:
    """The id by which callbacks know a run that no driver takes over, for it is complete; a copy has its own.

    Blocks; raises as `run_id`.
    """
    identifier = run_id(store, layout)
    if not is_copy(store, layout):
        return identifier
    return f"{layout.run}-{hashlib.sha256(f'{identifier} {store.where(layout.run)}'.encode()).hexdigest()[:12]}"


def older_id(name: str, started: float) -> str:
    """The id by which an older sparktrain has named a run to callbacks, which all copies of the run have."""
    return f"{name}-{round(started * 1000):x}"


def _older_id(store: Store, layout: JournalLayout) -> str:
    """The same of a run directory; empty where it was renamed."""
    try:
        overview = json.loads(store.read(f"{layout.run}/run.json"))
        return older_id(layout.run, overview["started"]) if overview["name"] == layout.run else ""
    except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
        return ""
