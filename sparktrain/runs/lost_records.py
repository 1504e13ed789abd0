"""Proof in a run directory that its journal has lost records which had counted.

A journal with truncated or deleted newest files looks like that of a driver that died at that moment. But what depends
on a record follows it: the members of a gang leave files, and `results.json` is written when all results are durable.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from sparktrain.base import formatting
from sparktrain.base.ids import Generation, TrialId
from sparktrain.errors import JournalCorruptError, SpecError
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.results_json import from_json
from sparktrain.runs.sweep_outcome import SweepOutcome
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.records import AnyRecord, GangFormed, TrialConcluded, TrialsAdded
from sparktrain.state.trial import NOT_FORMED
from sparktrain.store.base import Store

_TRIAL = re.compile(r"(\d+)/")
_GENERATION = re.compile(r"(?:generation-|gen-)(\d+)(?:-restart-\d+)?/")
_SHOWN = 8


@dataclass(frozen=True)
class Lost:
    """What the journal should have, and lacks."""

    results: tuple[TrialResult, ...] = ()
    """The results in `results.json` of trials that have no result in the journal."""
    generations: tuple[tuple[TrialId, Generation], ...] = ()
    """Trials that the journal knows, each with a newer generation than the journal knows."""
    trials: tuple[TrialId, ...] = ()
    """Trials that the journal does not know."""

    def __bool__(self) -> bool:
        return bool(self.results or self.generations or self.trials)

    def __str__(self) -> str:
        evidence = [
            ("results.json has a result of", [result.id for result in self.results]),
            ("there are files of gangs that it does not know, of", [trial for trial, _ in self.generations]),
            ("there are files or results of unknown", list(self.trials)),
        ]
        proof = "; ".join(f"{statement} {_named(trials)}" for statement, trials in evidence if trials)
        return f"its newest records are lost: they were cut off or deleted after they had counted ({proof})"


def check_whole(
    store: Store, layout: RunLayout, records: Sequence[AnyRecord], again: Callable[[], Sequence[AnyRecord]]
) -> None:
    """Raises JournalCorruptError when there is proof that the journal has lost records. Blocks; raises OSError.

    `records` are those of the journal, and `again` reads the journal once more.
    """
    if lost := lost_records(store, layout, records, again):
        where = store.where(layout.path)
        raise JournalCorruptError(f"journal of {where} is corrupt: {lost}; `sparktrain fsck {where}` has the next step")


def lost_records(
    store: Store, layout: RunLayout, records: Sequence[AnyRecord], again: Callable[[], Sequence[AnyRecord]]
) -> Lost:
    """The records that are lost for certain; arguments and errors as of `check_whole`.

    A driver may write meanwhile, so the records are read once more before something counts as lost.
    """
    journal_facts = _JournalFacts(records)
    store_facts = _StoreFacts(_results(store, layout), dict(_generations(store, layout, journal_facts)))
    lost = _judged(store_facts, journal_facts)
    return _judged(store_facts, _JournalFacts(again())) if lost else lost


def restored(lost: Lost) -> list[AnyRecord]:
    """The records that make the journal complete for the trials that it knows: their results, and their generations,
    so that no later gang takes the same number."""
    results = {result.id: result for result in lost.results}
    facts = list[AnyRecord]()
    for trial, generation in lost.generations:
        members = results[trial].members if trial in results else ()
        hosts = tuple(member.host or "" for member in members)
        facts.append(GangFormed(trial=trial, generation=generation, hosts=hosts))
    for result in lost.results:
        if result.id not in lost.trials:
            facts.append(
                TrialConcluded(
                    trial=result.id,
                    status=result.status,
                    metrics=result.metrics,
                    failure=result.error,
                    seconds=result.seconds,
                    notices=result.notices,
                    extra=result.extra,
                    exported=result.exported,
                )
            )
    return facts


@dataclass(frozen=True)
class _StoreFacts:
    results: SweepOutcome | None
    generations: dict[TrialId, Generation]
    """For each trial that was examined, the newest generation that has left a folder."""


class _JournalFacts:
    """The content of the journal."""

    def __init__(self, records: Iterable[AnyRecord]) -> None:
        self.count = 0
        """Trials that were added."""
        self.concluded: set[TrialId] = set()
        """Trials that have, or once had, a result."""
        self.formed: dict[TrialId, Generation] = {}
        for record in records:
            match record:
                case TrialsAdded(cases=cases, each=each):
                    self.count += len(cases) * each
                case GangFormed(trial=trial, generation=generation):
                    self.formed[trial] = max(generation, self.generation(trial))
                case TrialConcluded(trial=trial, status=status) if status.observed:
                    self.concluded.add(trial)

    def generation(self, trial: TrialId) -> Generation:
        return self.formed.get(trial, NOT_FORMED)


def _judged(store_facts: _StoreFacts, journal_facts: _JournalFacts) -> Lost:
    results = store_facts.results.trials if store_facts.results is not None else ()
    newest = dict(store_facts.generations)
    for result in results:
        newest[result.id] = Generation(max(result.generations, newest.get(result.id, NOT_FORMED)))
    return Lost(
        tuple(result for result in results if result.status.observed and result.id not in journal_facts.concluded),
        tuple(
            pair
            for pair in sorted(newest.items())
            if pair[0] < journal_facts.count and pair[1] > journal_facts.generation(pair[0])
        ),
        tuple(sorted(trial for trial in newest if trial >= journal_facts.count)),
    )


def _results(store: Store, layout: RunLayout) -> SweepOutcome | None:
    """None where the file is missing or cannot be read."""
    try:
        return from_json(json.loads(store.read(layout.results)))
    except (FileNotFoundError, ValueError, AttributeError, SpecError):
        return None


def _generations(store: Store, layout: RunLayout, journal_facts: _JournalFacts) -> Iterator[tuple[TrialId, Generation]]:
    """The newest generation of each trial without a result and of each unknown trial; lists two folders for each."""
    for trial_match in map(_TRIAL.fullmatch, store.entries(layout.trials)):
        if trial_match is None:
            continue
        trial = TrialId(int(trial_match[1]))
        if layout.trial(trial) == f"{layout.trials}/{trial_match[1]}" and trial not in journal_facts.concluded:
            names = [*store.entries(layout.trial(trial)), *store.entries(layout.checkpoints(trial))]
            numbers = [int(name_match[1]) for name_match in map(_GENERATION.fullmatch, names) if name_match is not None]
            yield trial, Generation(max(numbers, default=NOT_FORMED))


def _named(trials: Sequence[TrialId]) -> str:
    suffix = f" and {formatting.count(len(trials) - _SHOWN, 'other')}" if len(trials) > _SHOWN else ""
    return f"{'trial' if len(trials) == 1 else 'trials'} {', '.join(map(str, trials[:_SHOWN]))}{suffix}"
