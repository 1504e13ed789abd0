"""Keeps drivers from taking a run over while it is deleted.

A removal puts a mark first, and then looks for new terms; a driver takes its term first, and then looks for marks. So
of two that meet, one at least sees the other, and withdraws. The mark is the last file of a run that goes: until then
no driver owns anything there, and afterwards nothing is deleted that a driver has put.
"""

import os
import socket
from contextlib import suppress
from typing import NamedTuple

import msgspec

from sparktrain.base.formatting import ago
from sparktrain.base.process_tree import process_state
from sparktrain.errors import RunDirectoryError
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.journal_file import VERSION
from sparktrain.rundir.journal.reader import survey
from sparktrain.rundir.journal.writer import RemovalMark, remover, take
from sparktrain.rundir.layout import JournalLayout
from sparktrain.store.base import Store


class Ownership(NamedTuple):
    """Who owns a run, by the files of its journal."""

    terms: tuple[int, ...]
    newest: bytes
    """The file of the newest term, which is unique."""
    removal: int
    """The number of the newest mark; 0 when there is none."""


def ownership(store: Store, layout: JournalLayout) -> Ownership:
    """Who owns the run at this moment. Blocks on the store. Raises OSError."""
    listing = survey(store, layout)
    newest = b""
    if listing.term:
        with suppress(FileNotFoundError):  # deleted since it was listed
            newest = store.read(layout.term(listing.term))
    return Ownership(listing.terms, newest, listing.removal)


class MarkedRemoval:
    """A removal that has put its mark. Its methods block on the store, and raise OSError."""

    def __init__(self, store: Store, layout: JournalLayout, number: int) -> None:
        """Use `start`."""
        self._store = store
        self._layout = layout
        self._number = number

    @classmethod
    def start(cls, store: Store, layout: JournalLayout, identity: DriverIdentity, before: Ownership) -> "MarkedRemoval":
        """Keep drivers away from the run, and depose a former one.

        `before` is what `ownership` returned before the run was found to be idle. Raises RunDirectoryError, and changes
        nothing, when a driver has taken the run over since, or another process deletes the run.
        """
        number = before.removal + 1
        if not store.put_if_absent(layout.removal(number), msgspec.json.encode(RemovalMark(VERSION, identity))):
            raise RunDirectoryError(f"{_run(store, layout)} is being deleted by another process: wait for its end")
        removal = cls(store, layout, number)
        now = ownership(store, layout)
        if (now.terms, now.newest) != (before.terms, before.newest):
            store.delete(removal.mark)
            raise RunDirectoryError(
                f"run directory {_run(store, layout)} is in use: a driver has taken it over a moment ago, and nothing "
                "was deleted; stop that process, or wait for its end"
            )
        # A driver that only looked dead learns from the later term that it is deposed.
        take(store, layout, identity, survey(store, layout).highest, None)
        return removal

    @property
    def mark(self) -> str:
        """The path of its mark in the store."""
        return self._layout.removal(self._number)

    def check(self) -> None:
        """Raise RunDirectoryError when another process has taken this one for dead, and deletes in its place."""
        if self._store.exists(self._layout.removal(self._number + 1)):
            raise RunDirectoryError(
                f"another process deletes {_run(self._store, self._layout)}, because this one was silent for too long: "
                "it ends"
            )


def check_unmarked(store: Store, layout: JournalLayout, silent_s: float) -> bool:
    """Whether a removal of the run was interrupted. Blocks on the store. Raises OSError.

    Raises RunDirectoryError while a process deletes the run: one of this host that lives, or one of another host that
    has put its mark less than `silent_s` seconds ago, by the store's clock.
    """
    number = survey(store, layout).removal
    if number == 0:
        return False
    peer = remover(store, layout, number)
    try:
        marked = store.stat(layout.removal(number)).modified
    except FileNotFoundError:  # it has ended
        return False
    over = has_ended(peer)
    when, step = "", "or end it, and call again"
    if over is None:
        since_s = store.now(layout.run) - marked
        over = since_s >= silent_s
        when = f", which has started {ago(since_s)}"
        step = f"or pass --older-than {max(1, int(since_s))}s when you know that it is gone"
    if not over:
        raise RunDirectoryError(
            f"{_run(store, layout)} is being deleted by {peer or 'another process'}{when}: wait for its end, {step}"
        )
    return True


def has_ended(process: DriverIdentity | None) -> bool | None:
    """Whether a process of this host that has changed a run has ended, or is this one; None for other hosts."""
    if process is None or process.host != socket.gethostname():
        return None
    return process.pid == os.getpid() or process_state(process.pid) in ("", "Z")


def _run(store: Store, layout: JournalLayout) -> str:
    return store.where(layout.run)
