"""What the backends of rings have in common while they form: to meet, and to say who did not come."""

from collections.abc import Collection
from math import ceil

from sparktrain.clock import Clock
from sparktrain.errors import FormError
from sparktrain.state.topology import Formation
from sparktrain.training.collectives.backend import Joining

HERE = "here/"
"""Before the rank of a member, the key by which it tells that it has begun to join."""


def meet(joining: Joining, clock: Clock) -> dict[str, bytes]:
    """Wait until every member has begun to join, at most `joining.timeout_s`; give back what else they have shared.

    From then on members are no further apart than a message takes. Raises FormError that names who did not come.
    """
    formation = joining.formation
    until = clock.now() + joining.timeout_s
    came = {formation.rank}
    shared: dict[str, bytes] = {}
    try:
        joining.exchange.share(f"{HERE}{formation.rank}", b"")
        while len(came) < formation.size:
            left = until - clock.now()
            found = joining.exchange.shared(left) if left > 0 else None
            if found is None:
                raise FormError(_missing(formation, came, joining.timeout_s))
            key, value = found
            if key.startswith(HERE):
                came.add(int(key.removeprefix(HERE)))
            else:
                shared[key] = value
    except OSError as error:
        raise FormError(f"{own(formation)} lost its agent while its ring formed: {error}") from error
    return shared


def own(formation: Formation) -> str:
    """This member, as messages name it."""
    return f"rank {formation.rank} on {formation.mine.host}"


def whole_seconds(seconds: float) -> int:
    """For settings that take no fractions: rounded up, and 1 at least."""
    return max(1, ceil(seconds))


def _missing(formation: Formation, came: Collection[int], timeout_s: float) -> str:
    missing = [f"{rank} on {place.host}" for rank, place in enumerate(formation.places) if rank not in came]
    return (
        f"the ring of {formation.size} members could not be formed: after {timeout_s:g} s rank {', '.join(missing)} "
        "had not begun to join; the log of that member tells what it waits for"
    )
