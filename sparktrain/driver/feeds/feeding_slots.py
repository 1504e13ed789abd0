"""How many of Spark's slots the jobs that feed streams may use, so that none waits for a slot that another one holds.

A task that feeds holds its slot until its member has taken its rows. A member that reads two streams side by side, or
a gang that advances together, stops taking the rows of one task while it waits for those of another. So all
tasks of all streams that are read at the same time need slots at the same time.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sparktrain.base import formatting
from sparktrain.config.gang_spec import GangSpec
from sparktrain.errors import ResourceError

_MORE_CORES = "give the cluster more cores (spark.executor.cores=2 with spark.task.cpus=1)"
ADVICE = (
    f"{_MORE_CORES}, start fewer workers, or pass the DataFrame as data={{...}}, which is written before training "
    "starts"
)
_PUSHED_ADVICE = (
    f"{_MORE_CORES}, pass a smaller num_executors, or let members read files by themselves (InputMode.TENSORFLOW)"
)


class FeedingSlots(NamedTuple):
    """What the feeding jobs of a run may use."""

    slots: int
    """For all of them."""
    tasks: int | None
    """For each one; None where any number of tasks is served in turn, or slots are not known."""


def feeding_slots(
    streams: Sequence[str], gang: GangSpec, agents: int, slots: int | None, *, held: bool = True, pushed: bool = False
) -> FeedingSlots:
    """The slots for the feeding jobs of a run with `agents` agents, in a session of `slots` slots; None: unknown.

    `held`: agents hold slots of that session; `pushed`: calls of a TFCluster send the rows. Raises ResourceError for
    too few free slots.
    """
    if not streams or slots is None:
        return FeedingSlots(1, None)
    free = max(0, slots - agents * held)
    jobs = max(1, agents // gang.size) * (len(streams) - 1) + 1
    if jobs * gang.workers > free:
        fed = _pushed(streams) if pushed else _streamed(streams)
        demand = _slot_demand(jobs * gang.workers, agents * held, slots)
        raise ResourceError(f"{fed} need at least {demand}: {_PUSHED_ADVICE if pushed else ADVICE}")
    if jobs * gang.workers == 1:
        return FeedingSlots(1, None)
    tasks = free // jobs // gang.workers * gang.workers
    return FeedingSlots(jobs * tasks, tasks)


def _streamed(streams: Sequence[str]) -> str:
    is_one = len(streams) == 1
    names = " and ".join(f"data[{name!r}]" for name in streams)
    return f"{names} {'is a stream' if is_one else 'are streams'}: the tasks that feed {'it' if is_one else 'them'}"


def _pushed(feeds: Sequence[str]) -> str:
    return f"the tasks by which cluster.train() and cluster.inference() feed {' and '.join(map(repr, feeds))}"


def _slot_demand(needed_slots: int, agents: int, slots: int) -> str:
    """How many free slots are wanted, and who holds how many of those that there are."""
    share = f"all {slots}" if agents >= slots else f"{agents} of the {slots}"
    held = f"beside the {formatting.count(agents, 'agent')}, which hold{'s' * (agents == 1)} {share} slots of"
    return (
        f"{formatting.count(needed_slots, 'free slot')} {held if agents else f'of the {slots} slots of'} this session"
    )
