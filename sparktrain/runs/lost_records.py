"""What else a run directory tells of its trials: proof that records are gone which had counted.

A journal whose newest files are cut or deleted looks like one of a driver that died just then. But what depends on a
record comes after it: the members of a gang leave files, and `results.json` is written when all results are durable.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from sparktrain import formatting
from sparktrain.errors import JournalCorruptError, SpecError
from sparktrain.ids import Generation, TrialId
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.results_json import from_json
from sparktrain.runs.sweep_outcome import SweepOutcome
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.records import AnyRecord, GangFormed, TrialConcluded, TrialsAdded
from sparktrain.state.trial import NOT_FORMED
from sparktrain.store.base import Store

_TRIAL = re.compile(r"(\d+)/")
_GENERATION = re.compile(r"(?:generation-|gen-)(\d+)/")
_TOLD = 8


@dataclass(frozen=True)
class Lost:
    """What the journal should have, and has not."""

    results: tuple[TrialResult, ...] = ()
    """Of `results.json`: those of trials that have no result in the journal."""
    generations: tuple[tuple[TrialId, Generation], ...] = ()
    """Trials that the journal knows, and a generation that was formed after those that it knows."""
    trials: tuple[TrialId, ...] = ()
    """Those that it does not know at all."""

    def __bool__(self) -> bool:
        return bool(self.results or self.generations or self.trials)

    def __str__(self) -> str:
        said = [
            ("results.json has a result of", [each.id for each in self.results]),
            ("there are files of gangs that it does not know of", [trial for trial, _ in self.generations]),
            ("there are files or results of unknown", list(self.trials)),
        ]
        told = "; ".join(f"{what} {_named(trials)}" for what, trials in said if trials)
        return f"its newest records are lost: they were cut off or deleted after they had counted ({told})"


def check_whole(
    store: Store, layout: RunLayout, records: Sequence[AnyRecord], again: Callable[[], Sequence[AnyRecord]]
) -> None:
    """Raises JournalCorruptError when there is proof that the journal has lost records. Blocks; raises OSError.

    `records` are those of the journal, and `again` reads them anew.
    """
    if lost := lost_records(store, layout, records, again):
        where = store.where(layout.path)
        raise JournalCorruptError(f"journal of {where} is corrupt: {lost}; `sparktrain fsck {where}` says what to do")


def lost_records(
    store: Store, layout: RunLayout, records: Sequence[AnyRecord], again: Callable[[], Sequence[AnyRecord]]
) -> Lost:
    """What there is proof of. As `check_whole`.

    A driver may write meanwhile: so what seems to be lacking is looked for in the records that are there afterwards.
    """
    known = _Known(records)
    seen = _Seen(_results(store, layout), dict(_generations(store, layout, known)))
    lost = _judged(seen, known)
    return _judged(seen, _Known(again())) if lost else lost


def restored(lost: Lost) -> list[AnyRecord]:
    """What is to be written, so that the journal lacks nothing any more of the trials that it knows: the results, and
    that generations were formed whose names nobody may use again."""
    results, facts = {each.id: each for each in lost.results}, list[AnyRecord]()
    for trial, generation in lost.generations:
        members = results[trial].members if trial in results else ()
        hosts = tuple(each.host or "" for each in members)
        facts.append(GangFormed(trial=trial, generation=generation, hosts=hosts))
    for each in lost.results:
        if each.id not in lost.trials:
            facts.append(
                TrialConcluded(
                    trial=each.id,
                    status=each.status,
                    metrics=each.metrics,
                    failure=each.error,
                    seconds=each.seconds,
                    notices=each.notices,
                )
            )
    return facts


@dataclass(frozen=True)
class _Seen:
    results: SweepOutcome | None
    generations: dict[TrialId, Generation]
    """The newest that has left a folder, of each trial that was looked at."""


class _Known:
    """What the journal says."""

    def __init__(self, records: Iterable[AnyRecord]) -> None:
        self.count = 0
        """Trials that were added."""
        self.concluded: set[TrialId] = set()
        """Those that have, or once had, a result."""
        self.formed: dict[TrialId, Generation] = {}
        for record in records:
            match record:
                case TrialsAdded(cases=cases):
                    self.count += len(cases)
                case GangFormed(trial=trial, generation=generation):
                    self.formed[trial] = max(generation, self.generation(trial))
                case TrialConcluded(trial=trial, status=status) if status.observed:
                    self.concluded.add(trial)

    def generation(self, trial: TrialId) -> Generation:
        return self.formed.get(trial, NOT_FORMED)


def _judged(seen: _Seen, known: _Known) -> Lost:
    told = seen.results.trials if seen.results is not None else ()
    newest = dict(seen.generations)
    for each in told:
        newest[each.id] = Generation(max(each.generations, newest.get(each.id, NOT_FORMED)))
    return Lost(
        tuple(each for each in told if each.status.observed and each.id not in known.concluded),
        tuple(pair for pair in sorted(newest.items()) if pair[0] < known.count and pair[1] > known.generation(pair[0])),
        tuple(sorted(trial for trial in newest if trial >= known.count)),
    )


def _results(store: Store, layout: RunLayout) -> SweepOutcome | None:
    """None where there are none, or they tell nothing."""
    try:
        return from_json(json.loads(store.read(layout.results)))
    except (FileNotFoundError, ValueError, AttributeError, SpecError):
        return None


def _generations(store: Store, layout: RunLayout, known: _Known) -> Iterator[tuple[TrialId, Generation]]:
    """Of trials without a result, and of unknown ones: two folders are listed for each."""
    for found in map(_TRIAL.fullmatch, store.entries(layout.trials)):
        if found is None:
            continue
        trial = TrialId(int(found[1]))
        if layout.trial(trial) == f"{layout.trials}/{found[1]}" and trial not in known.concluded:
            names = [*store.entries(layout.trial(trial)), *store.entries(layout.checkpoints(trial))]
            numbers = [int(each[1]) for each in map(_GENERATION.fullmatch, names) if each is not None]
            yield trial, Generation(max(numbers, default=NOT_FORMED))


def _named(trials: Sequence[TrialId]) -> str:
    more = f" and {formatting.count(len(trials) - _TOLD, 'other')}" if len(trials) > _TOLD else ""
    return f"{'trial' if len(trials) == 1 else 'trials'} {', '.join(map(str, trials[:_TOLD]))}{more}"
