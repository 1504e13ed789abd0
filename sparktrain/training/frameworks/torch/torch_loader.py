"""Shards the samples of a user's `DataLoader`: each one at most once in an epoch, over all members.

In step i of a gang of k members, rank r gets batch i*k+r of the epoch, as with `ctx.shard` for arrays.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
)

from sparktrain.config.param_values import shown, type_name
from sparktrain.errors import SpecError
from sparktrain.training.data import assignment
from sparktrain.training.data.assignment import Indices, Uneven
from sparktrain.training.data.pass_progress import PassProgress, PassStart
from sparktrain.training.data.position import Position
from sparktrain.training.data.row_order import RowShare
from sparktrain.training.frameworks.torch.resumable_loader import ResumableLoader
from sparktrain.training.notices import notice
from sparktrain.training.own_devices import own_cores

_CALL = "ctx.shard()"


def shard(
    data: Any,
    *,
    rank: int,
    size: int,
    batch_size: int | None = None,
    uneven: str = "drop",
    shuffle: bool = False,
    seed: int = 0,
    class_weight: Mapping[int, float] | None = None,
    position: Position | None = None,
) -> "ShardedLoader":
    """The share of member `rank` of `size` in the `DataLoader` `data`: a `DataLoader` with the same options.

    Batch size, `collate_fn`, workers, pinned memory and generator stay; the batch size is that of one member. A loader
    that shuffles draws a new order for each epoch from `seed`, the same on all members. A sampler of another class
    draws again for each epoch, with the generators of torch, NumPy and Python seeded for it: it must draw the same on
    all members. `uneven`: a last step that lacks samples is dropped, or filled with those from the start of the epoch
    ("repeat"); a single member drops nothing, and `drop_last` drops the last smaller batch before that.

    An epoch that a restart continues starts at the next batch, without loading the samples before it. Workers may have
    loaded batches that the loop has not taken; these are loaded again. Does not block. Raises SpecError.
    """
    loader = _checked(data, batch_size=batch_size, shuffle=shuffle, class_weight=class_weight)
    share = assignment.share(rank, size, uneven)
    if share.uneven is Uneven.PAD:
        raise SpecError(
            f"{_CALL}: uneven ('pad') weighs samples, and a DataLoader has no weights: use 'drop' or 'repeat'"
        )
    samples = len(loader.sampler)
    batch = assignment.batch_of(loader.batch_size)
    rows = samples // batch * batch if loader.drop_last else samples
    _check_workers(loader.num_workers)
    return ShardedLoader(loader, RowShare(share, rows, batch), seed, position or Position())


class ShardedLoader(ResumableLoader):
    """A member's share of a `DataLoader`: see `shard`."""

    def __init__(self, loader: DataLoader[Any], share: RowShare, seed: int, position: Position) -> None:
        sampler = _Share(loader.sampler, share, seed)
        shuffles = not isinstance(loader.sampler, SequentialSampler)
        source = {"samples": share.rows, "seed": seed if shuffles else None}
        options: dict[str, Any] = {
            "collate_fn": loader.collate_fn,
            "num_workers": loader.num_workers,
            "pin_memory": loader.pin_memory,
            "timeout": loader.timeout,
            "worker_init_fn": loader.worker_init_fn,
            "multiprocessing_context": loader.multiprocessing_context,
            "persistent_workers": loader.persistent_workers,
        }
        if loader.generator is not None:
            options["generator"] = loader.generator
        if hasattr(loader, "in_order"):  # torch 2.6
            options["in_order"] = loader.in_order
        if loader.num_workers:
            options["prefetch_factor"] = loader.prefetch_factor
        progress = PassProgress(share, position, source)
        super().__init__(loader.dataset, progress, steps=share.steps, batch_sampler=sampler, **options)
        self._share = sampler
        self._seed = seed % 2**64

    def start(self, started: PassStart) -> None:
        """See base class."""
        self._share.started = started

    def seeds(self, started: PassStart) -> Sequence[int]:
        """See base class. Members differ."""
        return self._seed, started.share.share.rank


class _Share(Sampler[list[int]]):  # type: ignore[misc]
    """The batches of one member in the rest of an epoch, as numbers of samples."""

    def __init__(self, sampler: Any, share: RowShare, seed: int) -> None:
        self.started: PassStart | None = None
        self._sampler = sampler
        self._share = share
        self._seed = seed

    def __len__(self) -> int:
        return self._share.steps

    def __iter__(self) -> Iterator[list[int]]:
        started = self.started
        assert started is not None
        order = _order(self._sampler, self._seed, started.number)
        for step in range(started.skipped, started.share.steps):
            yield order[started.share.positions(step, step + 1)].tolist()


def _order(sampler: Any, seed: int, number: int) -> Indices:
    """The samples of epoch `number`, in order. Does not change the process's generators."""
    if type(sampler) is SequentialSampler:
        return assignment.order(len(sampler), None, number)
    if _is_plain_shuffle(sampler):
        return assignment.order(len(sampler), seed, number)
    state = random.getstate()
    numpy_state = np.random.get_state()
    generator = getattr(sampler, "generator", None)
    try:
        with torch.random.fork_rng(devices=[]):
            words = np.random.SeedSequence([seed % 2**64, number]).generate_state(2).tolist()
            torch.manual_seed(words[0])
            np.random.seed(words[1])
            random.seed(words[0])
            if isinstance(generator, torch.Generator):
                generator.manual_seed(words[0])
            numbers = list(sampler)
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)
    return _checked_order(sampler, numbers)


def _checked_order(sampler: Any, numbers: list[Any]) -> Indices:
    name = type(sampler).__name__
    if len(numbers) != len(sampler):
        raise SpecError(
            f"{_CALL}: {name} yields {len(numbers)} samples, and its length is {len(sampler)}: correct its __len__, by "
            "which members divide the samples"
        )
    other = next((number for number in numbers if not isinstance(number, int | np.integer)), None)
    if other is not None:
        raise SpecError(f"{_CALL}: {name} yields {shown(other)}, and not numbers of samples: correct its __iter__")
    return np.array(numbers, np.int64)


def _is_plain_shuffle(sampler: Any) -> bool:
    return type(sampler) is RandomSampler and not sampler.replacement and len(sampler) == len(sampler.data_source)


# --- what cannot be sharded


def _checked(data: Any, *, batch_size: int | None, shuffle: bool, class_weight: object) -> DataLoader[Any]:
    """The loader `data`. Raises SpecError for one that has no share."""
    if not isinstance(data, DataLoader):
        wrapped = "the Dataset" if isinstance(data, Dataset) else "TensorDataset(...) of the tensors"
        raise SpecError(f"{_CALL} got {_described(data)}: pass DataLoader({wrapped}, batch_size=..., shuffle=...)")
    for name, value in {"batch_size": batch_size, "shuffle": shuffle, "class_weight": class_weight}.items():
        if value:
            step = "weigh the loss" if name == "class_weight" else f"pass {name} to the DataLoader"
            raise SpecError(f"{_CALL}: {name} ({shown(value)}) is not for a DataLoader: {step}")
    if isinstance(data, ResumableLoader):
        raise SpecError(f"{_CALL} got a {type(data).__name__}, which has this member's share already: iterate over it")
    if isinstance(data.dataset, IterableDataset):
        raise SpecError(
            f"{_CALL} got a DataLoader without a length, of the IterableDataset {type(data.dataset).__name__}, which "
            "only that class can share: have it yield every ctx.size-th sample from ctx.rank on, use a Dataset with "
            "__len__ and __getitem__, or pass files and tables as data= and read ctx.dataset(...).to_torch()"
        )
    if data.batch_size is None:
        raise SpecError(
            f"{_CALL} got a DataLoader without batch_size, which makes its batches by itself "
            f"({type(data.batch_sampler or data.dataset).__name__}): pass batch_size= and sampler= to it"
        )
    if isinstance(data.sampler, DistributedSampler):
        raise SpecError(
            f"{_CALL} got a DataLoader with a DistributedSampler, which has this member's share already: iterate over "
            "the loader itself, or leave out the sampler"
        )
    try:
        len(data.sampler)
    except (TypeError, NotImplementedError):
        raise SpecError(
            f"{_CALL} got a DataLoader without a length: give {type(data.sampler).__name__} and "
            f"{type(data.dataset).__name__} a __len__"
        ) from None
    return data


def _described(data: Any) -> str:
    if isinstance(data, Sequence) and not isinstance(data, Dataset):
        return f"a {type_name(data)} of tensors"
    return f"a {type(data).__name__}"


def _check_workers(workers: int) -> None:
    cores = own_cores()
    if workers > cores:
        notice(
            f"{_CALL}: num_workers ({workers}) of the DataLoader is above the {cores} core{'s' * (cores != 1)} of this "
            f"slot, which its workers and the training share: pass num_workers={max(1, cores - 1)}, or give slots more "
            "cores"
        )
