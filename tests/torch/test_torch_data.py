"""Rows of `data=`, and loaders of users, as batches of tensors: the shares of members, their order, and restarts."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import sparktrain as st
from sparktrain.errors import DataError, SpecError, UserError
from sparktrain.training.checkpoint import tensor_files, training_state
from sparktrain.training.data import feed_request
from sparktrain.training.data.position import Position
from sparktrain.training.data.training_data import TrainingData
from sparktrain.training.frameworks.torch.torch_loader import shard
from tests.support.written_data import reader_of, written
from tests.torch import ddp_programs

pytestmark = pytest.mark.torch

ROWS = 103
BATCH = 8


def table(rows: int = ROWS) -> pa.Table:
    numbers = np.arange(rows)
    return pa.table(
        {
            "id": numbers,
            "double": numbers / 2,
            "small": (numbers % 7).astype(np.float32),
            "flag": numbers % 3 == 0,
            "image": pa.array([bytes([number % 256] * 5) for number in numbers], pa.binary()),
            "list": pa.array([[number, -number] for number in numbers], pa.list_(pa.int32())),
            "word": [f"w{number}" for number in numbers],
        }
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def manifest(place: Path) -> Any:
    return written(table(), place)


@pytest.fixture
def member(manifest: Any, place: Path) -> Any:
    def made(rank: int = 0, size: int = 1, position: Position | None = None) -> TrainingData:
        return TrainingData(manifest, reader_of(manifest, place), rank, size, 5, position)

    return made


def ids(batches: Iterable[Any]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def flat(batches: Iterable[Any]) -> list[int]:
    return [number for batch in batches for number in batch.tolist()]


@pytest.mark.parametrize("chunk", [1, 20, 4096])
@pytest.mark.parametrize("shuffle", [False, True])
def test_rows_are_those_of_iter_batches(
    member: Any, monkeypatch: pytest.MonkeyPatch, chunk: int, shuffle: bool
) -> None:
    monkeypatch.setattr(feed_request, "CHUNK_ROWS", chunk)
    for rank in range(2):
        data = member(rank, 2)
        columns = ["id", "double", "small", "flag", "image", "list"]
        batches = data.to_torch(batch_size=BATCH, feature_columns=columns, shuffle=shuffle)
        for epoch in range(2):
            arrays = list(data.iter_batches(batch_size=BATCH, columns=columns, shuffle=shuffle, epoch=epoch))
            tensors = list(batches)
            assert len(tensors) == len(arrays) == len(batches)
            for tensor, array in zip(tensors, arrays, strict=True):
                assert list(tensor) == columns
                for name in columns:
                    expected = torch.from_numpy(np.array(array[name]))
                    kind = torch.float32 if name == "double" else expected.dtype
                    assert tensor[name].dtype is kind, name
                    assert torch.equal(tensor[name], expected.to(kind)), name


def test_batches_have_features_labels_and_weights(member: Any) -> None:
    data = member()
    x, y, weight = next(
        iter(
            data.to_torch(
                batch_size=4, feature_columns=["id", "small"], label_columns="flag", weight_column="double", stack=True
            )
        )
    )
    assert x.tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert x.dtype is torch.float32
    assert y.tolist() == [True, False, False, True]
    assert weight.tolist() == [0, 0.5, 1, 1.5]
    torch.set_default_dtype(torch.float64)
    try:
        [x, *_] = data.to_torch(batch_size=4, feature_columns="double")
    finally:
        torch.set_default_dtype(torch.float32)
    assert x.dtype is torch.float64


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_doubles_follow_the_default_type_as_far_as_numpy_has_it(member: Any, kind: torch.dtype) -> None:
    torch.set_default_dtype(kind)
    try:
        [x, *_] = member().to_torch(batch_size=4, feature_columns="double")
    finally:
        torch.set_default_dtype(torch.float32)
    assert x.dtype is (torch.float32 if kind is torch.bfloat16 else kind)
    assert x.tolist() == [0, 0.5, 1, 1.5]


def test_batches_may_be_changed_in_place(member: Any) -> None:
    for shuffle in (False, True):
        batches = member().to_torch(batch_size=BATCH, feature_columns="id", shuffle=shuffle)
        expected = flat(batches)
        batches.load_state_dict(batches.state_dict() | {"epoch": 0})
        assert [number + 1 for number in expected] == flat(batch.add_(1) for batch in batches)


@pytest.mark.parametrize(("uneven", "steps"), [("drop", 4), ("repeat", 5), ("pad", 5)])
def test_members_have_as_many_steps(member: Any, uneven: str, steps: int) -> None:
    rows = []
    for rank in range(3):
        batches = member(rank, 3).to_torch(
            batch_size=BATCH, feature_columns="id", label_columns="flag", uneven=uneven, shuffle=True
        )
        assert len(batches) == steps
        shares = list(batches)
        assert len(shares) == steps
        rows += [
            int(number)
            for x, _, *weights in shares
            for number, weight in zip(x, weights[0] if weights else torch.ones(len(x)), strict=True)
            if weight
        ]
    assert len(set(rows)) == (ROWS if uneven != "drop" else len(rows))
    assert uneven == "repeat" or len(set(rows)) == len(rows)


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 2), (3, 2), (2, 3)])
@pytest.mark.parametrize("taken", [0, 1, 3, 4])
def test_a_pass_continues_in_a_gang_of_another_size(member: Any, before: int, after: int, taken: int) -> None:
    """Each row comes once in a pass, whatever the sizes are, up to what a last step lacks."""
    options = {"batch_size": BATCH, "feature_columns": "id", "shuffle": True}
    seen: list[int] = []
    state: Any = None
    for rank in range(before):
        batches = member(rank, before).to_torch(**options)
        list(batches)  # a whole pass before the one that is interrupted
        reading = iter(batches)
        seen += flat(next(reading) for _ in range(taken))
        state = batches.state_dict()
        number = 2 if taken == len(batches) else 1
        assert batches.epoch == number
    others = [member(rank, after).to_torch(**options) for rank in range(after)]
    for batches in others:
        batches.load_state_dict(state)
        assert batches.epoch == number
        seen += flat(batches) if number == 1 else []
    assert len(set(seen)) == len(seen)
    assert len(seen) > ROWS - max(before, after) * BATCH
    if before == after == 1:
        alone = member().to_torch(**options)
        list(alone)
        assert [seen, flat(others[0])] == [flat(alone), flat(alone)]


def test_an_iteration_that_is_left_early_ends_its_pass(member: Any) -> None:
    batches = member().to_torch(batch_size=BATCH, feature_columns="id", shuffle=True)
    first = next(iter(batches)).tolist()
    assert batches.epoch == 1
    assert next(iter(batches)).tolist() != first


def test_a_position_in_other_data_is_refused(member: Any) -> None:
    batches = member().to_torch(batch_size=BATCH, feature_columns="id", shuffle=True)
    with pytest.raises(UserError, match=r"a position in data was expected, not \{'a': 1\}: pass what state_dict"):
        batches.load_state_dict({"a": 1})
    other = member().to_torch(batch_size=BATCH, feature_columns="id", shuffle=True, seed=6)
    with pytest.raises(UserError, match=r"'seed': 6\}, and the data is .*'seed': 5\}: pass the same data"):
        batches.load_state_dict(other.state_dict())


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (
            {},
            DataError,
            r"data\['train'\]: torch has no tensors of strings, which 'word' would need: name other columns",
        ),
        ({"feature_columns": "imag"}, DataError, "no column 'imag'.*mean 'image'"),
        ({"feature_columns": "id", "batch_size": 0}, SpecError, r"batch_size \(0\) must be at least 1"),
        ({"feature_columns": "id", "uneven": "pad"}, SpecError, "needs labels"),
        ({"feature_columns": ["id", "list"], "stack": True}, DataError, "'list' are none"),
    ],
)
def test_wrong_arguments_are_refused(member: Any, options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        member().to_torch(**{"batch_size": BATCH} | options)


def test_small_and_empty_datasets(tmp_path: Path) -> None:
    few = written(table(3), tmp_path)
    data = TrainingData(few, reader_of(few, tmp_path), 0, 1, 5)
    assert ids(data.to_torch(batch_size=2**62, feature_columns="id")) == [[0, 1, 2]]
    with pytest.raises(SpecError, match="3 rows for 4 members: each member needs at least one batch"):
        TrainingData(few, reader_of(few, tmp_path), 0, 4, 5).to_torch(batch_size=1, feature_columns="id")
    with pytest.raises(SpecError, match="2 batches for 3 members"):
        TrainingData(few, reader_of(few, tmp_path), 0, 3, 5).to_torch(batch_size=2, feature_columns="id")


# --- loaders of users


def samples(count: int = ROWS) -> TensorDataset:
    return TensorDataset(torch.arange(count))


def shares(loader: Any, size: int, **options: Any) -> list[Any]:
    return [shard(loader, rank=rank, size=size, seed=3, **options) for rank in range(size)]


def numbers(loader: Any) -> list[int]:
    return [number for [batch] in loader for number in batch.tolist()]


def test_a_checkpoint_after_the_last_batch_of_an_epoch_continues_before_its_end(tmp_path: Path) -> None:
    [saving] = shares(DataLoader(samples(), batch_size=4), 1)
    for step, _ in enumerate(saving, 1):
        if step == len(saving):
            state = training_state.capture(None, step, parts=(saving,))
    tensor_files.save(tmp_path / "state", state.tensors, state.document)
    [resumed] = shares(DataLoader(samples(), batch_size=4), 1)
    training_state.restore(None, tmp_path / "state", 0, parts=(resumed,))
    assert resumed.epoch == 0, "what the loop does after the epoch is still to come"
    assert numbers(resumed) == []
    assert resumed.epoch == 1
    assert len(numbers(resumed)) == ROWS


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_members_share_the_samples_of_a_loader(shuffle: bool, workers: int) -> None:
    loader = DataLoader(samples(), BATCH, shuffle=shuffle, num_workers=workers)
    members = shares(loader, 2)
    epochs = [[numbers(each) for each in members] for _ in range(2)]
    for parts in epochs:
        assert [len(part) for part in parts] == [6 * BATCH + 3] * 2 or [len(part) for part in parts] == [6 * BATCH] * 2
        seen = sorted([*parts[0], *parts[1]])
        assert len(set(seen)) == len(seen)
    assert (epochs[0] == epochs[1]) == (not shuffle)
    assert members[0].batch_sampler is not loader.batch_sampler
    assert members[0].num_workers == workers
    [[first], *_] = list(members[1])
    assert shuffle or first.tolist() == list(range(BATCH, 2 * BATCH))


def test_a_single_member_loses_no_sample_and_drops_what_the_loader_drops() -> None:
    [alone] = shares(DataLoader(samples(), BATCH, shuffle=True), 1)
    assert sorted(numbers(alone)) == list(range(ROWS))
    assert len(alone) == 13
    [alone] = shares(DataLoader(samples(), BATCH, drop_last=True), 1)
    assert numbers(alone) == list(range(ROWS // BATCH * BATCH))


def test_a_loader_keeps_its_options() -> None:
    loader = DataLoader(samples(), BATCH, collate_fn=lambda rows: ("mine", len(rows)), generator=torch.Generator())
    [alone] = shares(loader, 1)
    assert next(iter(alone)) == ("mine", BATCH)
    assert alone.generator is loader.generator


@pytest.mark.parametrize("kind", ["data", "loader", "sampler"])
def test_an_iteration_draws_no_number_of_the_process(member: Any, kind: str) -> None:
    """A checkpoint has torch's generator: a resumed iteration would move it on."""
    sampler = WeightedRandomSampler([1.0] * ROWS, ROWS) if kind == "sampler" else None
    loader = DataLoader(samples(), BATCH, shuffle=sampler is None, sampler=sampler)
    batches = member().to_torch(batch_size=BATCH, feature_columns="id") if kind == "data" else shares(loader, 1)[0]
    state = torch.get_rng_state()
    numpy_state = np.random.get_state()[1].tolist()  # type: ignore[index]
    assert len(list(batches)) == len(batches)
    assert torch.equal(torch.get_rng_state(), state)
    assert np.random.get_state()[1].tolist() == numpy_state  # type: ignore[index]


class Draws(TensorDataset):
    """Numbers that workers draw."""

    def __getitem__(self, number: int) -> Any:
        return (torch.rand(()),)


def test_workers_draw_other_numbers_in_each_epoch_and_member_and_the_same_in_a_restart() -> None:
    loader = DataLoader(Draws(torch.arange(8)), 4, num_workers=1)
    first, second = shares(loader, 2)
    draws = [[number for [batch] in each for number in batch.tolist()] for each in (first, first, second)]
    assert len({number for drawn in draws for number in drawn}) == 12
    [again, _] = shares(loader, 2)
    again.load_state_dict(again.state_dict() | {"epoch": 1})
    assert [number for [batch] in again for number in batch.tolist()] == draws[1]


def test_a_sampler_of_the_user_is_drawn_alike_by_all_members() -> None:
    sampler = WeightedRandomSampler([1.0] * 50 + [0.0] * 53, 64)
    members = shares(DataLoader(samples(), BATCH, sampler=sampler), 2)
    state = torch.get_rng_state()
    parts = [numbers(members[0])]
    torch.rand(9)  # members draw other numbers for other purposes
    parts.append(numbers(members[1]))
    assert [len(part) for part in parts] == [32, 32]
    assert max(*parts[0], *parts[1]) < 50
    torch.set_rng_state(state)
    [again] = shares(DataLoader(samples(), BATCH, sampler=sampler), 1)
    assert numbers(again)[: 2 * BATCH] == [*parts[0][:BATCH], *parts[1][:BATCH]]


class Keys(SequentialSampler):
    """Yields other keys than numbers, or too few of them."""

    def __init__(self, keys: Sequence[Any], count: int) -> None:
        super().__init__(samples(count))
        self._keys = keys

    def __iter__(self) -> Any:
        return iter(self._keys)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (["a", "b", "c"], "Keys yields 'a', and not numbers of samples"),
        ([0, 1], "yields 2 samples, and its length is 3"),
    ],
)
def test_a_sampler_that_members_cannot_divide_is_refused(keys: Sequence[Any], words: str) -> None:
    [alone] = shares(DataLoader(samples(3), 1, sampler=Keys(keys, 3)), 1)
    with pytest.raises(SpecError, match=words):
        next(iter(alone))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_continues_without_its_first_samples(workers: int) -> None:
    loader = DataLoader(samples(), BATCH, shuffle=True, num_workers=workers)
    [alone] = shares(loader, 1)
    expected = [numbers(alone), numbers(alone)]
    [killed] = shares(loader, 1)
    numbers(killed)
    reading = iter(killed)
    taken = [number for _ in range(4) for number in next(reading)[0].tolist()]
    state = killed.state_dict()
    del reading
    members = shares(loader, 2)
    for each in members:
        each.load_state_dict(state)
    rest = [number for each in members for number in numbers(each)]
    assert taken == expected[1][: 4 * BATCH]
    assert set(rest) <= set(expected[1][4 * BATCH :])
    assert len(set(rest)) == len(rest) > ROWS - 6 * BATCH


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(range(5))


class Unsized:
    def __getitem__(self, number: int) -> int:
        return number


class UnsizedSampler(SequentialSampler):
    def __init__(self) -> None:
        super().__init__(())

    def __len__(self) -> int:
        raise TypeError("unknown")


@pytest.mark.parametrize(
    ("loader", "options", "words"),
    [
        (DataLoader(Endless()), {}, r"without a length, of the IterableDataset Endless.*ctx\.rank on"),
        (DataLoader(Unsized(), sampler=UnsizedSampler()), {}, "without a length: give UnsizedSampler and Unsized"),
        (DataLoader(samples(), batch_size=None), {}, "without batch_size, which makes its batches by itself"),
        (
            DataLoader(samples(), sampler=DistributedSampler(samples(), 2, 0)), {},
            "DistributedSampler, which has this member's share already",
        ),
        (samples(), {}, r"got a TensorDataset: pass DataLoader\(the Dataset"),
        ((torch.ones(3), torch.ones(3)), {}, r"got a tuple of tensors: pass DataLoader\(TensorDataset"),
        (DataLoader(samples()), {"batch_size": 4}, r"batch_size \(4\) is not for a DataLoader: pass batch_size to the"),
        (DataLoader(samples()), {"uneven": "pad"}, "'pad'.* weighs samples"),
        (DataLoader(samples(1)), {}, "1 batch for 2 members|1 row for 2 members"),
        (DataLoader(samples(5), 8, drop_last=True), {}, "0 rows for 2 members"),
    ],
)  # fmt: skip
def test_what_has_no_share_is_refused_with_the_next_step(loader: Any, options: dict[str, Any], words: str) -> None:
    with (
        st.testing.local_context(size=2, backend="torch", mirrored=True) as ctx,
        pytest.raises(SpecError, match=words),
    ):
        ctx.shard(loader, **options)


def test_more_workers_than_cores_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    shares(DataLoader(samples(), BATCH, num_workers=2), 1)
    assert "num_workers (2) of the DataLoader is above the 1 core of this slot" in capfd.readouterr().err
    shares(DataLoader(samples(), BATCH, num_workers=1), 1)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("kind", ["data", "loader", "workers"])
def test_a_gang_that_loses_a_member_within_an_epoch_takes_each_row_once(tmp_path: Path, kind: str) -> None:
    count = ddp_programs.ROWS
    seen = []
    with st.pool(st.local(slots=2), preload=["torch"]) as pool:
        for kill_at in (0, 9):  # of 6 steps an epoch
            result = pool.run(
                ddp_programs.read_data, {"kind": kind, "kill_at": kill_at, "folder": str(tmp_path)}, workers=2, seed=4,
                data={"train": table(count)}, dir=str(tmp_path / "runs"), name=f"run-{kill_at}", progress=False,
            )  # fmt: skip
            assert result.metrics == {"steps": 12, "rows": 2 * count}
            assert len(result.restarts) == bool(kill_at)
            seen.append(np.load(tmp_path / f"{kind}-{kill_at}.npy").tolist())
    assert seen[0] == seen[1]
    assert sorted(seen[0][:count]) == sorted(seen[0][count:]) == list(range(count))
    assert seen[0][:count] != seen[0][count:]


# --- learning rates


def rates(scheduler: Any, optimizer: Any, steps: int) -> Sequence[float]:
    seen = []
    for _ in range(steps):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return seen


def test_a_rate_rises_from_that_of_one_member() -> None:
    with st.testing.local_context(size=4, backend="torch", mirrored=True) as ctx:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], ctx.scale_lr(0.1))
        scheduler = ctx.warmup_lr(optimizer, 3)
        assert rates(scheduler, optimizer, 5) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4])
        with pytest.raises(SpecError, match=r"steps of ctx\.warmup_lr\(\) is 0"):
            ctx.warmup_lr(optimizer, 0)
        with pytest.raises(SpecError, match=r"takes an optimizer of PyTorch: for Keras"):
            ctx.warmup_lr(0.1, 3)


def test_a_warm_up_joins_other_schedules_and_its_state_is_saved() -> None:
    with st.testing.local_context(size=2, backend="torch", mirrored=True) as ctx:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], ctx.scale_lr(0.5))
        schedules = [ctx.warmup_lr(optimizer, 2), torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]
        joined = torch.optim.lr_scheduler.SequentialLR(optimizer, schedules, [2])
        assert rates(joined, optimizer, 5) == pytest.approx([0.5, 0.75, 1.0, 0.5, 0.25])
        state = joined.state_dict()
        joined.load_state_dict(state)
