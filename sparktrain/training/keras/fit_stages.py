"""The calls of `fit` in a training function, in their order: what finished ones leave in a checkpoint. Pure.

A process that resumes calls the function from its beginning. A `fit` that a former process has finished is not trained
again: its model, its callbacks and the generators of chance are given what they had when it ended, so that whatever the
function does between two calls of `fit` comes out as it did. All of that is part of each later checkpoint.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparktrain.training.checkpoint.tensor_files import Array

KEPT_BYTES = 256 * 2**20
"""The most that checkpoints hold of weights that were trained on since, or whose model is gone."""


@dataclass(frozen=True)
class StagePosition:
    """Where a checkpoint was made."""

    step: int
    """Steps in all."""
    epoch: int
    """The epoch to go on in, from 0."""
    batch: int
    """Steps of that epoch that are done."""
    content: Mapping[str, Any] = field(default_factory=dict)
    """What else a stage needs to go on; empty where a loop of the user's has saved."""

    @property
    def stage(self) -> int:
        """Number of the `fit` that was running, from 1."""
        return int(self.content.get("stage", 1))


def _gone() -> None:
    """Stands for a model that this process does not have."""


@dataclass
class Finished:
    """What one `fit` has left."""

    facts: dict[str, Any]
    """Step, newest report, passes of the feeds, states of callbacks and generators: as `content.pack` takes them."""
    weights: "dict[str, Array]"
    """The model's variables when `fit` returned; empty where they took too much room."""
    optimizer: "dict[str, Array]" = field(default_factory=dict)
    """The optimizer's, once another model is trained while the function still holds this one."""
    model: Callable[[], Any] = _gone
    """The model while the function holds it, else None."""


class Stages:
    """The stages of one member. Used by one thread."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self.place: StagePosition | None = None
        """Where a former process has come to."""
        self.opened = False
        """Whether that was looked for."""
        self.alike = False
        """Whether this member had drawn the same random numbers as the chief until then."""
        self._finished: dict[int, Finished] = {}
        self._told = False

    def open(self, place: StagePosition | None, alike: bool) -> None:
        """Take over what a former process has finished."""
        self.opened, self.place, self.alike = True, place, alike
        self._finished = dict(_unpacked(place.content)) if place is not None else {}

    def went_by(self, fit: int) -> Finished | None:
        """What `fit` left in a former process; None where it is still to be trained."""
        return self._finished.get(fit) if self.place is not None and fit < self.place.stage else None

    def resumes(self, fit: int) -> bool:
        """Whether a former process was within this call of `fit`."""
        return self.place is not None and fit == self.place.stage

    def behind(self, fit: int) -> bool:
        """Whether a former process has come further than this call of `fit`."""
        return self.place is not None and fit < self.place.stage

    def finish(self, fit: int, facts: dict[str, Any], weights: "dict[str, Array]", model: Any) -> None:
        """Note the end of a `fit`. Tensors that did not change since an earlier one are held, and saved, once."""
        known = [each.weights for each in reversed(self._finished.values()) if each.weights.keys() == weights.keys()]
        for name, array in weights.items():
            weights[name] = next((old[name] for old in known[:1] if _equal(old[name], array)), _frozen(array))
        self._finished[fit] = Finished(facts, weights, model=weakref.ref(model))

    def attach(self, fit: int, model: Any) -> None:
        """A process that resumes has made the model of a finished `fit` again."""
        self._finished[fit].model = weakref.ref(model)

    def others(self, model: Any) -> list[Finished]:
        """Of each model but this one that the function still holds, what it left when it was trained last."""
        newest = {id(held): each for each in self._finished.values() if (held := each.model()) is not None}
        return [each for each in newest.values() if each.model() is not model]

    def make_room(self, model: Any) -> str:
        """Before `model` is trained: forget what takes too much room. Returns what there is to say of it, once."""
        needed = {id(each) for each in self.others(model)}
        room, seen, dropped = self._kept_bytes, set[int](), 0
        for number, each in sorted(self._finished.items(), reverse=True):
            if id(each) in needed:
                continue
            each.optimizer = {}
            size = sum(array.nbytes for array in each.weights.values() if id(array) not in seen)
            if size > room:
                each.weights, dropped = {}, max(dropped, number)
                continue
            room -= size
            seen |= {id(array) for array in each.weights.values()}
        if not dropped or self._told:
            return ""
        self._told = True
        return (
            f"the weights after fit {dropped} are too large to be kept beside the newest ({self._kept_bytes >> 20} "
            "MiB): what the function computes with them before its next fit would differ after a restart; send such "
            "numbers by ctx.report(), or call fit once, with more epochs"
        )

    def packed(self) -> dict[str, Any]:
        """What `open` takes, for a checkpoint: each tensor once."""
        tensors: list[Array] = []
        places: dict[int, int] = {}

        def indices(arrays: "Mapping[str, Array]") -> dict[str, int]:
            for array in arrays.values():
                if id(array) not in places:
                    places[id(array)] = len(tensors)
                    tensors.append(array)
            return {name: places[id(array)] for name, array in arrays.items()}

        finished = [
            [number, each.facts, indices(each.weights), indices(each.optimizer)]
            for number, each in self._finished.items()
        ]
        return {"finished": finished, "tensors": tensors}


def _unpacked(content: Mapping[str, Any]) -> Iterator[tuple[int, Finished]]:
    tensors = [_frozen(each) for each in content.get("tensors", [])]
    for number, facts, weights, optimizer in content.get("finished", []):
        held = [{name: tensors[index] for name, index in each.items()} for each in (weights, optimizer)]
        yield int(number), Finished(facts, held[0], held[1])


def _frozen(array: "Array") -> "Array":
    """The array, of memory of its own, which nobody may change: `content.pack` makes no copy of it."""
    own = array if array.flags.owndata and array.flags.c_contiguous else array.copy(order="C")
    own.flags.writeable = False
    return own


def _equal(one: "Array", another: "Array") -> bool:
    return one.dtype == another.dtype and one.shape == another.shape and one.tobytes() == another.tobytes()
