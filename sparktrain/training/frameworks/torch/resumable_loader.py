"""A `DataLoader` that knows its position in an epoch, so that a checkpoint has it."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import DataLoader

from sparktrain.training.data.pass_progress import PassProgress, PassStart


class ResumableLoader(DataLoader[Any]):  # type: ignore[misc] # torch is not where types are checked
    """Batches of one member. Each iteration is a pass, or the rest of the one that `load_state_dict` has named.

    A checkpoint that has it continues after the batches that the loop has taken: `ctx.checkpoint.save(step, model,
    optimizer, loader)`. An iteration that is left early ends its pass. For one thread, and one iteration at a time.
    """

    def __init__(self, dataset: Any, progress: PassProgress, *, steps: int, **options: Any) -> None:
        """`options` are those of `DataLoader`; `steps` is the length of a pass."""
        super().__init__(dataset, **options)
        self._progress = progress
        self._pass_steps = steps

    @property
    def epoch(self) -> int:
        """The number of the pass that comes next, or that is not over, from 0."""
        return self._progress.epoch

    def start(self, started: PassStart) -> None:
        """Have the iteration that starts read this part of a pass."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Steps of a whole pass, equal on all members."""
        return self._pass_steps

    def __iter__(self) -> Iterator[Any]:
        started = self._progress.start()
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

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next iteration continue from `state`, in a gang of any size. Raises UserError for other data."""
        self._progress.load(state)
