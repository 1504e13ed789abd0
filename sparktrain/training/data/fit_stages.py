"""The calls of `fit` in a training function, in order, and what finished ones leave in a checkpoint. Pure.

A process that resumes calls the function from its start. A `fit` that an earlier process has finished does not train:
its model, its callbacks and the random generators get the state that they had at its end, so that the function computes
the same between two calls of `fit`. Each later checkpoint has all of that.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparktrain.training.checkpoint.tensor_files import Array

KEPT_BYTES = 256 * 2**20
"""The most that checkpoints hold of superseded weights, and of weights of released models."""


@dataclass(frozen=True)
class StagePosition:
    """The position at which a checkpoint was made."""

    step: int
    """Steps in all."""
    epoch: int
    """The epoch to resume in, from 0."""
    batch: int
    """Finished steps of that epoch."""
    content: Mapping[str, Any] = field(default_factory=dict)
    """What else a stage needs to resume; empty where the user's own loop has saved."""

    @property
    def stage(self) -> int:
        """Number of the `fit` that was running, from 1."""
        return int(self.content.get("stage", 1))


def _no_model() -> None:
    """The reference to a model that this process does not have."""


@dataclass
class Finished:
    """The state that one `fit` has left."""

    facts: dict[str, Any]
    """Step, newest report, passes of the feeds, states of callbacks and generators: values for `extras.pack`."""
    weights: "dict[str, Array]"
    """The model's variables when `fit` returned; empty if they took too much memory."""
    optimizer: "dict[str, Array]" = field(default_factory=dict)
    """Variables of the optimizer, once another model trains while the function still holds this one."""
    model: Callable[[], Any] = _no_model
    """Returns the model while the function holds it, else None."""


class Stages:
    """The stages of one member. One thread uses it."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self.place: StagePosition | None = None
        """The position that an earlier process has reached."""
        self.opened = False
        """Whether `open` was called."""
        self.alike = False
        """Whether this member had drawn the same random numbers as the chief by then."""
        self.settings = 0
        """A digest of what the trial was called with."""
        self.call: dict[str, Any] = {}
        """What distinguishes the newest call of `fit` from others."""
        self._finished: dict[int, Finished] = {}
        self._noticed = False

    def open(self, place: StagePosition | None, alike: bool) -> None:
        """Take over the finished stages of an earlier process."""
        self.opened = True
        self.place = place
        self.alike = alike
        self._finished = dict(_unpacked(place.content)) if place is not None else {}

    def finished_before(self, fit: int) -> Finished | None:
        """The state that `fit` left in an earlier process; None if it has not finished."""
        return self._finished.get(fit) if self.place is not None and fit < self.place.stage else None

    def resumes(self, fit: int) -> bool:
        """Whether an earlier process was within this call of `fit`."""
        return self.place is not None and fit == self.place.stage

    def behind(self, fit: int) -> bool:
        """Whether an earlier process was past this call of `fit`."""
        return self.place is not None and fit < self.place.stage

    def finish(self, fit: int, facts: dict[str, Any], weights: "dict[str, Array]", model: Any) -> None:
        """Note the end of a `fit`. Tensors without a change since an earlier one are held, and saved, once."""
        past = [stage.weights for stage in reversed(self._finished.values()) if stage.weights.keys() == weights.keys()]
        for name, array in weights.items():
            weights[name] = next((prior[name] for prior in past[:1] if _equal(prior[name], array)), _frozen(array))
        # A weak reference: the function alone decides how long a model and its memory live.
        self._finished[fit] = Finished(facts, weights, model=weakref.ref(model))

    def attach(self, fit: int, model: Any) -> None:
        """Note the model of a finished `fit`, which a resuming process has rebuilt."""
        self._finished[fit].model = weakref.ref(model)

    def other_stages(self, model: Any) -> list[Finished]:
        """The newest state of each other model that the function still holds."""
        newest = {id(held): stage for stage in self._finished.values() if (held := stage.model()) is not None}
        return [stage for stage in newest.values() if stage.model() is not model]

    def make_room(self, model: Any) -> str:
        """Drop what takes too much memory before `model` trains. Returns a notice about it once, else an empty text."""
        needed = {id(other_stage) for other_stage in self.other_stages(model)}
        room = self._kept_bytes
        counted_ids = set[int]()
        dropped = 0
        for number, stage in sorted(self._finished.items(), reverse=True):
            if id(stage) in needed:
                continue
            stage.optimizer = {}
            size = sum(array.nbytes for array in stage.weights.values() if id(array) not in counted_ids)
            if size > room:
                stage.weights = {}
                dropped = max(dropped, number)
                continue
            room -= size
            counted_ids |= {id(array) for array in stage.weights.values()}
        return self._notice_of(dropped)

    def lacking(self) -> str:
        """A notice, once, about the newest finished `fit` without weights; else an empty text."""
        return self._notice_of(
            max((number for number, stage in self._finished.items() if not stage.weights), default=0)
        )

    def _notice_of(self, dropped: int) -> str:
        if not dropped or self._noticed:
            return ""
        self._noticed = True
        return (
            f"the weights after fit {dropped} are too large to be kept beside the newest ({self._kept_bytes >> 20} "
            "MiB): what the function computes with them before its next fit would differ after a restart; send such "
            "numbers by ctx.report(), or call fit once, with more epochs"
        )

    def packed(self) -> dict[str, Any]:
        """The finished stages for a checkpoint, each tensor once; `open` reads them."""
        tensors: list[Array] = []
        places: dict[int, int] = {}

        def indices(arrays: "Mapping[str, Array]") -> dict[str, int]:
            for array in arrays.values():
                if id(array) not in places:
                    places[id(array)] = len(tensors)
                    tensors.append(array)
            return {name: places[id(array)] for name, array in arrays.items()}

        finished = [
            [number, stage.facts, indices(stage.weights), indices(stage.optimizer)]
            for number, stage in self._finished.items()
        ]
        return {"finished": finished, "tensors": tensors}


def _unpacked(content: Mapping[str, Any]) -> Iterator[tuple[int, Finished]]:
    tensors = [_frozen(tensor) for tensor in content.get("tensors", [])]
    for number, facts, weights, optimizer in content.get("finished", []):
        held = [{name: tensors[index] for name, index in indices.items()} for indices in (weights, optimizer)]
        yield int(number), Finished(facts, held[0], held[1])


def _frozen(array: "Array") -> "Array":
    """The array in memory of its own, read-only: `extras.pack` makes no copy of it."""
    owned_array = array if array.flags.owndata and array.flags.c_contiguous else array.copy(order="C")
    owned_array.flags.writeable = False
    return owned_array


def _equal(one: "Array", counterpart: "Array") -> bool:
    return one.dtype == counterpart.dtype and one.shape == counterpart.shape and one.tobytes() == counterpart.tobytes()
