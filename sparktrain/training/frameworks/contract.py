"""What a framework gives a member, whichever functions use it: the contract of the folders beside this module.

No method imports a framework, so that one that the process does not use costs nothing:
`sparktrain.training.frameworks.imported` lists those that it has imported. One suite tests all of them,
`tests/training/test_frameworks.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from sparktrain.errors import SpecError


class RefusedUseError(SpecError):
    """The gang cannot train with what the function, or its environment, asks of a framework."""


class Framework(ABC):
    """One framework, in a process that trains. Its methods belong to the main thread, and none blocks."""

    module: str
    """The package that the process has imported when it uses the framework."""
    values: str | None = None
    """The module with its `UserValues` as `VALUES`, where it has one: see `Ring.values`."""
    distribution: str | None = None
    """The module with `distribute(value, gang, compression=...)` for what `owns` names, where there is one. `gang` is a
    `JoinedGang`; that of Keras is for all that no framework owns."""
    data: str | None = None
    """The module with its feeds, where there is one: `row_feed(request)` of a `FeedRequest`, and `shard(data, ...)`
    with the arguments of `ctx.shard` for what `owns_data` names."""
    schedules: str | None = None
    """The module with `warmup_lr(optimizer, steps, size)` for optimizers that `owns` names, where there is one."""
    joins: tuple[str, ...] = ()
    """The modules that let programs run in a gang which connect, or configure, the framework by themselves. They import
    no framework, for every zygote imports them. Each has those of these functions that it needs:

    * `prepare(gang, homes)`, before any code of the user, with the `MemberGang`. Raises RefusedUseError;
    * `connect(gang, backend)`, with the `JoinedGang`, when the gang has formed;
    * `provide(context)`, with the `TrainContext`, before the function is called.
    """
    arrays: str | None = None
    """The module for arrays with parts on other members, where there are such. It has

    * `is_split(value)`: whether `value` is one: other members hold parts of it that this one lacks;

    and for those alone

    * `dtype_name(value)`: the name of its dtype, as NumPy has it, or `ml_dtypes`;
    * `joined(value)`: an array of the host. All members call it, with the same array, and it blocks until they do;
    * `own_slices(value)`: pieces in host memory, each with its `Bounds`. Each element is in a piece of exactly one
      member. A piece may be memory that training changes;
    * `from_slices(value, read)`: a value in its place, with the parts that `read` returns for an `Index`. All members
      call it; each reads only what it holds.
    """
    loops: str | None = None
    """The module with `loop_steps(parts, healing)`, where there is one: the `LoopSteps` of a user's loop that trains
    what the framework `keeps`, or no parts but values; None where it cannot repeat their steps."""
    fits: str | None = None
    """The module with `healing_step(model, healing)`, where there is one: the `HealingStep` of a `fit` of Keras on this
    framework, or None for a model that it cannot repeat steps of."""
    state: str | None = None
    """The module that puts the state of what the framework `keeps` into checkpoints, where there is one. It has

    * `captured(parts, spare)`: entries of the checkpoint's document, as JSON values, and copies of arrays by name, in
      the arrays `spare` where they fit. Raises UserError and TypeError for what cannot be saved: nothing is written;
    * `retained(parts, spare)`: as `captured`, and a `Retention`. An array may be memory of the training, which a thread
      copies beside the next step, if training leaves it as it is until the retention ends;
    * `assign(parts, files, document, place, alike=...)`: gives the parts that state, at `place`, a rank and the number
      of members. Raises UserError, with nothing changed, where they are others than those that were saved;
    * `assign_metrics(parts, files, place)`: gives a model the values of its metrics; whether that was possible;
    * `of_chief(parts)`: copies of the arrays in which all continue as the chief does, such as states of generators, by
      their names;
    * `own(parts)`: copies of the arrays that each member has of its own, such as statistics and metrics;
    * `with_members(arrays, members)`: the captured arrays with the own ones of all members, by rank, from which
      `assign` gives each its own in a gang of that size;
    * `are_equal(parts)`: whether the members' parts are equal now, but for these;
    * `check_equal(ring, parts)`: raises OutOfStepError, on all members, where weights that they train together differ,
      or the state of the optimizers. All members call it after the same step; it blocks until they do;
    * `is_split(parts)`: whether members hold parts of the arrays; only then it needs
    * `captured_part(parts, spare, rank)`: as `captured`, of what the member `rank` alone writes, and the list of its
      slices. Rank 0 writes what is not split;
    * `captured_held(parts, spare, part)`, for memory checkpoints: as `captured_part`, of all that a member holds of
      part number `part`, and of what is not split;
    * `held_digest(parts)`: an integer, equal on members that hold equal parts.
    """

    def keeps(self, value: object) -> bool:
        """Whether `state` saves `value`. A framework that the process has not imported keeps nothing of it."""
        return False

    def check_parts(self, parts: Sequence[object]) -> None:  # noqa: B027 - most can save what they keep
        """Raise TypeError for one of `parts` that the framework keeps and `state` cannot save, UserError for one with
        which no step can end."""

    def owns(self, value: object) -> bool:
        """Whether `value` is a model or an optimizer that the framework distributes by itself, and Keras does not."""
        return False

    def has_tensors(self, value: object) -> bool:
        """Whether `value` is a tensor of the framework, or a dict, list or tuple with one."""
        return contains(value, self._tensor_types())

    def _tensor_types(self) -> tuple[type, ...]:
        """The classes of its tensors, where the process has imported it and it has `values` beside TensorFlow's."""
        return ()

    def owns_data(self, value: object) -> bool:
        """Whether `value` is data that only this framework reads, such as a loader of its own kind."""
        return False

    def seed(self, value: int) -> None:  # noqa: B027 - some have no global generator
        """Seed its global generators with a number from 0 to 2**32 - 1. Nothing where it has none."""

    def limit_gpu_memory(self, mib: int, total_mib: int) -> None:  # noqa: B027 - some have no limit to set
        """Let it use `mib` MiB of each GPU that this process sees: now, or right after its import.

        `total_mib` is what the smallest of them has; 0 where that is unknown.

        Call it once the devices of the process are chosen, and before the framework has initialised them: a zygote
        never does. Raises EnvironmentMismatchError where it sees no GPU, or has initialised them.
        """

    @abstractmethod
    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether `error` reports that a device, or the host, lacks memory. For errors that are no MemoryError."""

    def is_broken_collective(self, error: BaseException) -> bool:
        """Whether a collective of this package raised `error`, as opposed to other operations of the framework."""
        return False

    def is_lost_member(self, error: BaseException) -> bool:
        """Whether `error` shows the loss of another member in a cluster of the framework's own, beside the ring."""
        return False

    def watch(self, ring: Any) -> Callable[[], None] | None:
        """Note from now on what the function trains without `ring`, which has just formed.

        Returns what each member calls once its function has returned, and what blocks until all do: it prints to the
        chief's log that the members differ. None where that cannot be, which all members decide alike.
        """
        return None


def contains(value: object, kinds: tuple[type, ...]) -> bool:
    """Whether `value` is of one of the `kinds`, or a dict, list or tuple with a value that is."""
    if isinstance(value, dict | tuple | list):
        return any(contains(item, kinds) for item in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, kinds)
