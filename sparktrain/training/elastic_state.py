"""What states of Horovod's `elastic` share, of any framework: a restarted gang resumes at the last commit."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparktrain.training.context import TrainContext


class ElasticState(ABC):
    """The state of a training, with the callbacks of its user for a restart."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], object]] = []
        self._commits = 0

    @abstractmethod
    def sync(self) -> None:
        """Give all members the chief's values. Every member calls it; it blocks until all do."""

    @abstractmethod
    def resume(self) -> bool:
        """Take the values of the newest checkpoint; False where there is none. Blocks on the local disk."""

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], object]]) -> None:
        """Have `callbacks` called, in this order, when a restarted gang resumes."""
        self._callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Call the reset callbacks."""
        self.reset()
        for callback in self._callbacks:
            callback()

    def reset(self) -> None:  # noqa: B027 # most states have nothing to do
        """For subclasses: called before the reset callbacks."""

    def check_host_updates(self) -> None:  # noqa: B027 # of Horovod's interface
        """Does nothing: the driver restarts a gang when its hosts change."""


def resuming(function: Callable[..., Any], current_trial: Callable[[str], "TrainContext"]) -> Callable[..., Any]:
    """The training function `function(state, ...)`, resumed at the last commit: `hvd.elastic.run` of a framework.

    A lost member ends the processes of all, and the next generation calls the program from its start: here `state`
    takes the last commit, the reset callbacks run, and all members get the chief's values. Blocks until all call it.
    """

    @functools.wraps(function)
    def resumed(state: ElasticState, *args: Any, **options: Any) -> Any:
        again = current_trial("hvd.elastic.run()").generation > 1
        if state.resume() or again:
            state.on_reset()
        state.sync()
        # Errors reach the caller: Horovod's own `run` returns None after an error of an operation that it does not
        # know, and the failed worker counts as one that has succeeded.
        return function(state, *args, **options)

    return resumed
