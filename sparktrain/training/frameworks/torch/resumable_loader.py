"""A `DataLoader` that knows its position in an epoch, so that a checkpoint has it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from torch.utils.data import DataLoader

from sparktrain.training.data.pass_progress import PassProgress, PassStart

_LOADERS: "WeakSet[ResumableLoader]" = WeakSet()


def reads_unknown(parts: Sequence[Any]) -> bool:
    """Whether an iteration runs over a loader that is not among `parts`."""
    ids = set(map(id, parts))
    return any(loader.is_open and id(loader) not in ids for loader in list(_LOADERS))


class ResumableLoader(DataLoader[Any]):  # type: ignore[misc] # torch is not where types are checked
    """Batches of one member. Each iteration is a pass, or the rest of the one that `load_state_dict` has named.

    A checkpoint that has it continues after the batches that the loop has taken: `ctx.checkpoint.save(step, model,
    optimizer, loader)`. An iteration that is left early ends its pass. For one thread, and one iteration at a time.
    """

    def __init__(self, dataset: Any, progress: PassProgress, *, steps: int, **options: Any) -> None:
        """`options` are those of `DataLoader`; `steps` is the length of a pass."""
        # A loader draws the seed of its workers from torch's generator, which a checkpoint has: after a restart within
        # an epoch it would draw once more than without the restart.
        self._seeding = None if "generator" in options else torch.Generator()
        super().__init__(dataset, **options, **({} if self._seeding is None else {"generator": self._seeding}))
        self._progress = progress
        self._pass_steps = steps
        _LOADERS.add(self)

    @property
    def epoch(self) -> int:
        """The number of the pass that comes next, or that is not over, from 0."""
        return self._progress.epoch

    @property
    def is_open(self) -> bool:
        """Whether an iteration has started, and is not over."""
        return self._progress.is_open

    def start(self, started: PassStart) -> None:
        """Have the iteration that starts read this part of a pass."""
        raise NotImplementedError

    def seeds(self, started: PassStart) -> Sequence[int]:
        """What seeds the workers of this part of a pass with its number, unless the user has passed a generator."""
        return ()

    def __len__(self) -> int:
        """Steps of a whole pass, equal on all members."""
        return self._pass_steps

    def __iter__(self) -> Iterator[Any]:
        started = self._progress.start()
        if self._seeding is not None:
            [seed] = np.random.SeedSequence([*self.seeds(started), started.number]).generate_state(1).tolist()
            self._seeding.manual_seed(seed)
        try:
            self.start(started)
            for batch in super().__iter__():
                self._progress.take(started)
                yield batch
        finally:
            self._progress.end(started)

    def state_dict(self) -> dict[str, Any]:
        """The position, in numbers and strings."""
        return self._progress.state()

    def open_state_dict(self) -> dict[str, Any]:
        """See `PassProgress.open_state`."""
        return self._progress.open_state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next iteration continue from `state`, in a gang of any size. Raises UserError for other data."""
        self._progress.load(state)
