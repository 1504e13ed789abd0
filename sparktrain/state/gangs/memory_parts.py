"""Which member holds which part of a state in memory, who keeps copies for others, and who sends what. Pure.

A layout has, for each rank of a gang, the number of the part that this member holds. Replicas all hold part 0, members
of `fully_shard` each another one, and in hybrid sharding those with equal shards hold the same part.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Sequence

from msgspec import Struct

Layout = tuple[int, ...]
WHOLE: Layout = (0,)
"""Of replicas, however many they are."""


class PartCopy(Struct, frozen=True):
    """Member `target` keeps a copy of a part of `source`, beside its own."""

    part: int
    source: int
    target: int


class PartSend(Struct, frozen=True):
    """A part that some member lacks, and the rank that sends it."""

    part: int
    rank: int


class PartTransfers(Struct, frozen=True):
    """How the members of a new gang get the parts that they need from what their agents hold."""

    sends: tuple[PartSend, ...] = ()
    needs: tuple[int, ...] = WHOLE
    """The parts that this member needs."""
    is_split: bool = False
    """No member holds the whole state."""


def numbered(digests: Sequence[Hashable]) -> Layout:
    """The layout of members with these `digests` of what they hold, by rank: those with equal ones hold one part."""
    numbers: dict[Hashable, int] = {}
    return tuple(numbers.setdefault(digest, len(numbers)) for digest in digests)


def is_split(layout: Layout) -> bool:
    """Whether no member holds the whole state."""
    return len(set(layout)) > 1


def copies(layout: Layout, hosts: Sequence[str]) -> list[PartCopy]:
    """The copies with which each part outlasts the loss of any host, or, on a single host, of any agent.

    None for a part that members on two hosts hold. Members keep about as many copies each.
    """
    size = len(layout)
    # What is lost together: all on a host, or, where there is one host alone, each agent for itself.
    places = hosts if len(set(hosts)) > 1 else range(size)
    load = Counter[int]()
    planned = []
    for part in sorted(set(layout)):
        owners = [rank for rank in range(size) if layout[rank] == part]
        owner_places = {places[rank] for rank in owners}
        if len(owner_places) > 1:
            continue
        source = owners[0]
        candidates = [rank for rank in range(size) if places[rank] not in owner_places]
        target = min(candidates, key=lambda rank: (load[rank], (rank - source) % size))
        load[target] += 1
        planned.append(PartCopy(part, source, target))
    return planned


def is_whole(layout: Layout, held: Collection[int]) -> bool:
    """Whether the parts that are `held` make a whole state."""
    return set(layout) <= set(held)


def transfers(layout: Layout, held: Sequence[Collection[int]]) -> list[PartTransfers]:
    """Who gets which part in a new gang, by rank; `held` has the parts of each agent, together a whole state.

    In a gang of the same size a member needs the part of its rank, and in another one all parts.
    """
    every = tuple(sorted(set(layout)))
    needs = [(part,) for part in layout] if len(layout) == len(held) else [every] * len(held)
    lacking = {part for needed, parts in zip(needs, held, strict=True) for part in needed if part not in parts}
    sends = [PartSend(part, next(rank for rank, parts in enumerate(held) if part in parts)) for part in sorted(lacking)]
    return [PartTransfers(tuple(sends), needed, is_split(layout)) for needed in needs]
