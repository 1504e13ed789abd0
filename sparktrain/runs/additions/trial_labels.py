"""Notes and tags of trials: small files that users add to a run directory, whether the run has ended or not."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Literal

import msgspec
from msgspec import Struct

from sparktrain.base.clock import SystemClock
from sparktrain.base.decoding import from_json
from sparktrain.errors import SpecError
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.additions.submission import current_user, new_name
from sparktrain.store.base import Store

LONGEST_NOTE = 2000
LONGEST_TAG = 100
"""Characters."""

LabelKind = Literal["note", "tag", "untag"]


class Label(Struct, frozen=True, kw_only=True):
    """One change: a note or a tag that a trial gets, or a tag that it loses."""

    trial: int
    kind: LabelKind
    text: str
    user: str = ""
    at: float = 0.0
    """When, in seconds since 1970."""


class TrialLabels(Struct, frozen=True):
    """What users have written about a trial."""

    notes: tuple[str, ...] = ()
    """The oldest first."""
    tags: tuple[str, ...] = ()
    """Each once, in the order in which they came."""

    def with_label(self, label: Label) -> "TrialLabels":
        """The same after one more change."""
        if label.kind == "note":
            return TrialLabels((*self.notes, label.text), self.tags)
        other_tags = tuple(tag for tag in self.tags if tag != label.text)
        return TrialLabels(self.notes, other_tags if label.kind == "untag" else (*other_tags, label.text))


def checked_label(kind: LabelKind, text: object) -> str:
    """The text of a note or a tag. Raises SpecError for none, and for one that is too long."""
    limit = LONGEST_NOTE if kind == "note" else LONGEST_TAG
    subject = "a note" if kind == "note" else "a tag"
    if not isinstance(text, str) or not (plain := text.strip()) or (not plain.isprintable() and kind != "note"):
        line = "a text" if kind == "note" else "a text on one line"
        raise SpecError(f"{subject} is {text!r:.100}, and must be {line}: pass that")
    if len(plain) > limit:
        raise SpecError(f"{subject} has {len(plain):,} characters, and {limit:,} is the most: shorten it")
    return plain.encode(errors="backslashreplace").decode()


def add_label(store: Store, layout: RunLayout, trial: int, kind: LabelKind, text: object) -> str:
    """Store a note or a tag of a trial that exists; returns its text. Blocks. Raises SpecError, OSError."""
    plain = checked_label(kind, text)
    now = SystemClock().wall()
    label = Label(trial=trial, kind=kind, text=plain, user=current_user(), at=now)
    name = new_name(store, layout.labels, now)
    store.put_if_absent(layout.label(name), msgspec.json.encode(label))
    return plain


class LabelReader:
    """Reads the labels of a run, each file once. For one thread at a time."""

    def __init__(self, store: Store, layout: RunLayout) -> None:
        self._store = store
        self._layout = layout
        self._labels_by_path: dict[str, Label | None] = {}

    def read(self) -> Mapping[int, TrialLabels]:
        """The labels of each trial that has some. Blocks; what cannot be read is left out."""
        with suppress(OSError):
            for path in self._store.list(self._layout.labels):
                if path not in self._labels_by_path:
                    self._labels_by_path[path] = self._label(path)
        return _folded([self._labels_by_path[path] for path in sorted(self._labels_by_path)])

    def _label(self, path: str) -> Label | None:
        try:
            return from_json(self._store.read(path), Label)
        except msgspec.MsgspecError:
            return None  # another program's file


def _folded(labels: Sequence[Label | None]) -> dict[int, TrialLabels]:
    trial_labels: dict[int, TrialLabels] = {}
    for label in labels:
        if label is not None:
            trial_labels[label.trial] = trial_labels.get(label.trial, TrialLabels()).with_label(label)
    return trial_labels
