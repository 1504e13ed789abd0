"""The newest steps of the members of a gang as a trace for Perfetto: the JSON of Chrome's trace events.

The clocks of hosts differ, and those of members start at any number. But all members leave a collective at nearly the
same moment, and they call the same ones in the same order: the median of the differences is that of the clocks.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from sparktrain.base.ids import CHIEF, Generation, Rank, TrialId
from sparktrain.errors import SpecError
from sparktrain.rundir.step_file import Row, StepFile, decoded
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.view import RunView

_COMPARED = 200
"""Collectives, the newest ones, that clocks are compared by."""
_TRACKS = ("steps", "collectives", "data")


def step_trace(place: RunLocation, view: RunView, trial: TrialId, last: int) -> dict[str, Any]:
    """The last `last` steps of the newest gang of a trial, also while it trains.

    Blocks on the store. Raises SpecError where it has none.
    """
    result = next(result for result in view.results if result.id == trial)
    generation = Generation(result.generations)
    folder = f"{place.layout.trial(trial)}/generation-{generation}/"
    paths = [path for path in place.store.list(place.layout.trial(trial)) if path.startswith(folder)]
    files: dict[Rank, list[StepFile]] = {}
    members = {path: place.layout.member_of_steps(path) for path in paths}
    # Of the processes that one rank has had in a gang that heals, the newest counts.
    for path, member in sorted(members.items(), key=lambda item: item[1].incarnation if item[1] is not None else 0):
        if member is not None and member.generation == generation:
            parts = decoded(place.store.read(path), place.store.where(path))
            if parts:
                files[member.rank] = parts
    if not files:
        raise SpecError(
            f"there are no times of steps of trial {trial} in {place.where}: the members of a gang with a ring store "
            "them every few seconds, in fit() with ctx.keras_callbacks() and in a loop with ctx.memory_checkpoints(); "
            "an object store shows them when the member has ended"
        )
    return trace_of(same_steps(files), [member.host for member in result.members], last)


def same_steps(files: Mapping[Rank, Sequence[StepFile]]) -> dict[Rank, StepFile]:
    """The newest parts of the files that end with the same step on all ranks; else the newest part of each."""
    ends = set.intersection(*({part.steps[-1][0] for part in parts} for parts in files.values()))
    newest = max(ends, default=None)
    return {
        rank: next((part for part in reversed(parts) if part.steps[-1][0] == newest), parts[-1])
        for rank, parts in files.items()
    }


def trace_of(files: Mapping[Rank, StepFile], hosts: Sequence[str | None], last: int) -> dict[str, Any]:
    """The last `last` steps of all ranks; `hosts` are by rank. Times are in microseconds from the first event."""
    reference = files.get(CHIEF, next(iter(files.values())))
    events = [
        event
        for rank, content in sorted(files.items())
        for event in _events(int(rank), content, _ahead_ns(content.calls, reference.calls), last)
    ]
    first_ns = min((start_ns for *_, start_ns, _ in events), default=0)
    shown = [
        {"ph": "X", "name": name, "pid": rank, "tid": track, "ts": (start_ns - first_ns) / 1000, "dur": ns / 1000}
        for rank, track, name, start_ns, ns in events
    ]
    return {"traceEvents": [*_names(files, hosts), *shown], "displayTimeUnit": "ms"}


def _names(files: Mapping[Rank, StepFile], hosts: Sequence[str | None]) -> Iterator[dict[str, Any]]:
    for rank in sorted(files):
        host = hosts[rank] if rank < len(hosts) else None
        label = f"rank {rank}" if host is None else f"rank {rank} on {host}"
        yield {"ph": "M", "name": "process_name", "pid": int(rank), "args": {"name": label}}
        for track, name in enumerate(_TRACKS):
            yield {"ph": "M", "name": "thread_name", "pid": int(rank), "tid": track, "args": {"name": name}}


def _events(rank: int, content: StepFile, ahead_ns: int, last: int) -> Iterator[tuple[int, int, str, int, int]]:
    """Rank, track, name, start and length of what happened in the last steps, by the clock of the reference."""
    steps = content.steps[-last - 1 :]
    since_ns = steps[0][1]
    for (_, start_ns, _), (number, end_ns, data_ns) in pairwise(steps):
        yield rank, 0, f"step {number}", start_ns - ahead_ns, end_ns - start_ns
        if data_ns:
            yield rank, 2, "data", start_ns - ahead_ns, data_ns
    for start_ns, end_ns in content.calls:
        if start_ns >= since_ns and end_ns <= steps[-1][1]:
            yield rank, 1, "collective", start_ns - ahead_ns, end_ns - start_ns


def _ahead_ns(calls: Sequence[Row], reference: Sequence[Row]) -> int:
    """How far the clock of these collectives is ahead of that of the reference."""
    count = min(len(calls), len(reference), _COMPARED)
    pairs = zip(calls[-count:], reference[-count:], strict=True) if count else ()
    return int(median([call[1] - match[1] for call, match in pairs] or [0]))
